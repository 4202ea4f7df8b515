/** What an error says about the author's code, and what to do next. Pure. */

export interface Fact {
  name: string;
  value: string;
}

const NAMES: readonly (readonly [string, string])[] = [
  ["cause", "Cause"],
  ["place", "Line"],
  ["function", "Function"],
  ["stage", "Stage"],
  ["key", "Key"],
  ["inputs", "First records"],
  ["origin", "Origin"],
];

/** Return the facts that an error of an author's code names, in the order in which one asks. */
export function factsOf(error: Record<string, unknown>): Fact[] {
  const details = error["details"];
  if (typeof details !== "object" || details === null) return [];
  const known = details as Record<string, unknown>;
  return NAMES.flatMap(([key, name]) => {
    const value = known[key];
    if (value === undefined || value === null || value === "") return [];
    return [{ name, value: typeof value === "string" ? value : JSON.stringify(value, null, 1) }];
  });
}

const AUTHORS = new Set([
  "author_code_failed",
  "author_ended_process",
  "records_returned",
  "input_read_twice",
  "state_key_foreign",
  "state_expires_remote",
  "state_kept_remote",
  "lookup_several",
  "output_key_foreign",
  "output_key_twice",
  "view_key_twice",
  "view_remote",
  "author_state_changed",
  "author_unsendable",
  "decision_invalid",
  "destination_invalid",
  "route_key_invalid",
]);

/** Return the screens on which a person does that: a path below the dataflow, and the words of a link. */
export function nextScreens(code: string): { path: string; words: string }[] {
  const register = { path: "versions", words: "Register again" };
  if (AUTHORS.has(code)) return [register, { path: "recovery", words: "Roll back" }];
  return code === "code_drifted" ? [register] : [];
}

/** Return what a person does about an error with this code. */
export function nextStep(code: string): string {
  if (AUTHORS.has(code)) {
    return (
      "Nothing is lost: the input of the run stays queued. If the code is wrong, fix the line above, " +
      "register the dataflow again (if the code is an installed package, restart the service first), " +
      "and retry. If the record is wrong, declare on_error: set_aside for the stage, so that all other groups are processed " +
      "(`cbp help a-record-stops-a-stage`), or roll back to before it arrived, and drop later increments."
    );
  }
  if (code === "run_cancelled") return "A user cancelled this run. Retry to run the epoch again.";
  if (code === "run_gave_way") return "The run gave way to another dataflow, and is retried automatically.";
  if (code === "run_interrupted") return "The service stopped during this run. The epoch is retried automatically.";
  if (code === "time_limit") return "The run took longer than its limit. Find the cause, then retry.";
  if (code === "worker_ended") {
    return (
      "The run is repeated; if it fails again and again, the stage stops. If the system log says that memory ran out, " +
      "give the machine more memory, or lower the number of parallel runs (CBP_PARALLEL_RUNS_MAX). Then retry."
    );
  }
  if (code === "disk_full") return "Free some space on the disk. The run is retried automatically.";
  if (code === "code_drifted") return "Register the document again to use the new code.";
  return "The message explains the error; `cbp help damage` lists the repair commands.";
}
