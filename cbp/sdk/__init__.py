"""The SDK: base classes of translators, declarations of inputs and outputs, dataflow builder."""
