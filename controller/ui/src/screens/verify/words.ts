import type { components } from "@/api/schema";
import type { Tone } from "@/components/tones";
import { formatCount, formatCounted } from "@/format/format";

type Verification = components["schemas"]["VerificationOut"];
type Difference = components["schemas"]["DifferenceOut"];

/** Return the verdict in a word, and how it is to be taken. Pure. */
export function verdict(status: Verification["status"]): { word: string; tone: Tone } {
  switch (status) {
    case "waiting":
      return { word: "Waiting", tone: "busy" };
    case "running":
      return { word: "Running", tone: "busy" };
    case "equal":
      return { word: "Equal", tone: "good" };
    case "undecided":
      return { word: "Undecided", tone: "warn" };
    case "differs":
      return { word: "Differs", tone: "bad" };
    case "not_deterministic":
      return { word: "Not deterministic", tone: "bad" };
    case "timed_out":
      return { word: "Out of time", tone: "warn" };
    case "cancelled":
      return { word: "Cancelled", tone: "warn" };
    case "failed":
      return { word: "Failed", tone: "bad" };
  }
}

/** Return what a verification found, in one sentence. Pure. */
export function resultInWords(one: Verification): string {
  const compared = one.tables.filter(
    (table) => table.status !== "open" && table.status !== "left_out" && table.because === "",
  );
  const differing = compared.filter((table) => table.status === "differs").length;
  const records = compared.reduce((all, table) => all + table.records, 0);
  const scope = `${formatCounted(compared.length, "table")}, ${formatCounted(records, "record")} read`;
  switch (one.status) {
    case "equal":
      return `Every compared table equals its recomputation (${scope}).`;
    case "undecided":
      return `No difference was found (${scope}), but some tables could not be compared, or only from a later epoch on.`;
    case "differs":
      return `${formatCounted(differing, "table")} of ${compared.length} ${differing === 1 ? "differs" : "differ"}; the first stage with a difference is ${one.suspect}. A second recomputation gave the same result, or did not finish.`;
    case "not_deterministic":
      return `Two recomputations of the same input differ: stage ${one.suspect} is not deterministic.`;
    case "timed_out":
      return `The time limit was reached; no difference was found up to then (${scope}).`;
    case "cancelled":
      return `The verification was cancelled; no difference was found up to then (${scope}).`;
    case "failed":
      return "The verification could not be carried out.";
    default:
      return progressInWords(one);
  }
}

/** Return what is done of what. Pure. */
export function progressInWords(one: Verification): string {
  const far = one.total > 0 ? `: ${formatCount(one.done)} of ${formatCount(one.total)} ${one.unit}` : "";
  const step = one.step.charAt(0).toUpperCase() + one.step.slice(1);
  return `${step}${far}`;
}

export interface ComparedRow {
  side: "expected" | "actual";
  cells: readonly { column: string; value: string; differs: boolean }[];
}

/**
 * Return the records of one key, with the values that have no equal on the other side marked. Pure.
 *
 * A side without a record has one row without cells.
 */
export function comparedRows(one: Difference): ComparedRow[] {
  const rows = (side: ComparedRow["side"], mine: string[][], others: string[][]): ComparedRow[] => {
    if (mine.length === 0) return [{ side, cells: [] }];
    return mine.map((record) => ({
      side,
      cells: one.columns.map((column, at) => ({
        column,
        value: record[at] ?? "",
        differs: !others.some((other) => other[at] === record[at]),
      })),
    }));
  };
  return [...rows("expected", one.expected, one.found), ...rows("actual", one.found, one.expected)];
}
