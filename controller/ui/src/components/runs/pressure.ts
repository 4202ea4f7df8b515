/** Back-pressure of an input: how near what waits is to the limit at which its writer is held. Pure. */

export interface Limit {
  increments: number | null;
  records: number | null;
  bytes: number | null;
}

export interface Waiting {
  increments: number;
  records: number;
  bytes: number;
}

export interface Pressure {
  /** Share of the limit that is nearest; 1 and more: the writer is held. */
  share: number;
  /** Which of the limits is nearest. */
  by: keyof Limit;
  limit: number;
  waits: number;
}

/** Return what a share of a limit means, with NiFi's thresholds; in words, not by colour alone. */
export function levelOf(share: number): { word: string; color: string } {
  if (share >= 1) return { word: "full, so the stage that writes to it waits", color: "red" };
  if (share > 0.85) return { word: "nearly full", color: "red" };
  if (share > 0.6) return { word: "filling", color: "yellow" };
  return { word: "has room", color: "teal" };
}

/** Return how near an input is to its limits; `null`: it has none. */
export function pressureOf(waiting: Waiting, limit: Limit | undefined): Pressure | null {
  if (limit === undefined) return null;
  const nearest = (["increments", "records", "bytes"] as const)
    .flatMap((by) => {
      const most = limit[by];
      return most === null ? [] : [{ by, limit: most, waits: waiting[by], share: waiting[by] / most }];
    })
    .sort((one, other) => other.share - one.share)[0];
  return nearest ?? null;
}
