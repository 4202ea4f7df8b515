interface Outcome {
  channel: string;
  error: string | null;
}

/** What a test of the channels gave, in one sentence. */
export function outcomeOfTest(deliveries: readonly Outcome[]): string {
  const failed = deliveries.filter((one) => one.error !== null);
  if (deliveries.length === 0) return "No channel is configured, so no test was sent.";
  if (failed.length === 0) return `Sent by ${deliveries.map((one) => one.channel).join(", ")}`;
  return failed.map((one) => `${one.channel} failed: ${one.error}`).join("; ");
}
