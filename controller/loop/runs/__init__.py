"""Runs: start, watch, publish, retry, and keep failures inside one dataflow.

The modules of a run, in the order in which it meets them:

    tick/ticker                       which run starts
    tick/run_starts                   its record and its plan; prepares it in a thread (`in_flight`)
      time_limit                      it takes too long: cancelled, then given up
      isolation                       beside other runs: which must wait
      failures                        it failed: when its stage tries again, or stops
    run_commit                        puts its intention: the commit point
      publisher                       publishes it, alone or with others
      parked, tick/ticker             it could not be finished yet: finished later
    recovery/redo                     after a crash: finishes what has an intention

`dataflow_locks` keeps operations on the same dataflow apart; `output_retention` says which outputs
are kept. `run_counts` counts for metrics.
"""
