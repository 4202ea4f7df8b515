/** What a plan of a change means for who has to confirm it. Pure. */

import type { components } from "@/api/schema";
import { formatBytes, formatCounted } from "@/format/format";

type Change = components["schemas"]["ChangeOut"];
type Node = components["schemas"]["NodeOut"];
type Queue = components["schemas"]["QueueChangeOut"];
type Place = components["schemas"]["PlaceUseOut"];

/** Return what becomes of a node and of its state, in words. */
export function becomes(node: Node): string {
  const state = { none: "", kept: "state kept", new: "state begins empty", rebuilt: "state rebuilt" }[
    node.state
  ];
  if (node.kind === "removed" || state === undefined || state === "") return node.kind;
  return `${node.kind}, ${state}`;
}

/** Return with which records each new view of a stage begins, a phrase each. */
export function viewsInWords(node: Node): string[] {
  const begins: Record<string, string> = {
    filled: "begins with the last record of each key of its flow",
    rebuilt: "is rebuilt with its stage",
    empty: "begins empty, and gets the groups that are called from then on",
  };
  return Object.entries(node.views).map(([view, fate]) => `view ${view} ${begins[fate] ?? fate}`);
}

/** Tell whether what a stage has kept is lost. */
export function losesState(node: Node): boolean {
  return node.kind === "removed" || (node.kind === "replaced" && node.state === "new");
}

/** Return the bytes of a stage's state tables on disk; null: they were not measured yet. */
export function stateBytes(stage: string, places: readonly Place[]): number | null {
  const tables = places.filter((one) => one.place.startsWith(`state/${stage}.`));
  return tables.length === 0 ? null : tables.reduce((all, one) => all + one.bytes, 0);
}

/** Return what is lost, a sentence each; empty: nothing is. */
export function losses(change: Change, places: readonly Place[]): string[] {
  const states = change.stages.filter(losesState).map((node) => {
    const bytes = stateBytes(node.name, places);
    const size = bytes === null ? "" : ` (${formatBytes(bytes)} on disk)`;
    return `The state of ${node.name} is lost${size}.`;
  });
  const queues = change.queues
    .filter((queue) => queue.dropped_increments > 0)
    .map(
      (queue) =>
        `${formatCounted(queue.dropped_increments, "increment")} (${formatCounted(queue.dropped_records, "record")}) queued at ${queue.stage}.${queue.input} are dropped.`,
    );
  return [...states, ...queues];
}

/** Return what is read again because of a change, in one sentence for an input; "": nothing. */
export function queuedInWords(queue: Queue): string {
  if (queue.queued_increments === 0) return "";
  return `${queue.stage}.${queue.input} reads ${formatCounted(queue.queued_increments, "increment")} again: ${formatCounted(queue.queued_records, "record")}, ${formatBytes(queue.queued_bytes)}.`;
}

/** Return what an input that begins with the next increment does not read, in one sentence; "": nothing. */
export function skippedInWords(queue: Queue): string {
  if (queue.skipped_increments === 0) return "";
  const before = formatCounted(queue.skipped_increments, "increment");
  return `${queue.stage}.${queue.input} reads new input only, not the ${before} before it.`;
}

/** Return the decisions that an author can take about a stage; empty: none. */
export function decisions(node: Node): { value: string; label: string }[] {
  const usual = { value: "", label: "as the service decides" };
  const rebuild = { value: "rebuild", label: "rebuild its state from its input" };
  if (node.kind === "replaced") {
    return [usual, { value: "keep", label: "keep its state and queues" }, rebuild];
  }
  if (node.kind === "added") {
    return [usual, { value: "retained", label: "begin with the input that is still kept" }];
  }
  return node.kind === "kept" ? [usual, rebuild] : [];
}
