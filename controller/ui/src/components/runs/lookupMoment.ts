/** The moment as of which a run looked up a table. */
export interface Moment {
  epoch: number;
  version: number;
}

/** Return in words as of when a table was looked up. */
export function momentWords(moment: Moment | undefined): string {
  if (moment === undefined) return "no run yet";
  const epoch = moment.epoch < 0 ? "before epoch 0" : `epoch ${moment.epoch}`;
  return `${epoch} (version ${moment.version})`;
}
