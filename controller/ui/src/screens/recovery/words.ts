import type { components } from "@/api/schema";
import { formatCounted } from "@/format/format";

type Recovery = components["schemas"]["RecoveryOut"];
type Plan = components["schemas"]["RollbackPlanOut"];

/** Return what a recovery did, a sentence each; the list is empty if it changed nothing. Pure. */
export function recoveryInWords(recovery: Recovery): string[] {
  const lines = recovery.dataflows.flatMap((one) => [
    ...one.redone.map(({ stage, first, last }) =>
      first === last
        ? `Epoch ${first} of ${stage} was published and recorded again.`
        : `Epochs ${first} to ${last} of ${stage} were published and recorded again.`,
    ),
    ...(one.interrupted.length > 0
      ? [`Runs that a crash interrupted start again: ${one.interrupted.join(", ")}.`]
      : []),
    ...(one.position === null ? [] : [`Restored position ${one.position}.`]),
    ...(one.generation === null ? [] : [`Finished roll-back ${one.generation}.`]),
    ...(one.problem === "" ? [] : [`The dataflow could not be recovered at once: ${one.problem}`]),
  ]);
  return [...lines, ...recovery.removed.map((folder) => `Removed ${folder}.`)];
}

/** Return what a roll-back takes away and brings back, a sentence each. Pure. */
export function undoneInWords(plan: Plan): string[] {
  const { undone, dropped, left_out } = plan.rollback;
  const runs = Object.values(undone).reduce((all, n) => all + n, 0);
  const waiting = Object.entries(plan.queued).filter(([, n]) => n > 0);
  return [
    runs === 0
      ? "No run is undone."
      : `${formatCounted(runs, "run")} and the ${formatCounted(plan.records_undone, "record")} that ${runs === 1 ? "it" : "they"} wrote are undone.`,
    ...plan.corrections.map(
      (one) =>
        `The correction of ${formatCounted(one.keys, "key")} of ${one.stage}.${one.state} is undone (${one.reason}).`,
    ),
    ...waiting.map(
      ([input, n]) => `${formatCounted(n, "increment")} will wait at ${input}, and ${n === 1 ? "is" : "are"} applied again.`,
    ),
    ...Object.entries(dropped).map(
      ([source, n]) => `${formatCounted(n, "increment")} of ${source} ${n === 1 ? "is" : "are"} dropped, and not applied again.`,
    ),
    ...Object.entries(left_out).map(
      ([source, { length: n }]) =>
        `${formatCounted(n, "increment")} of ${source} that you named ${n === 1 ? "is" : "are"} left out, and not applied again.`,
    ),
    ...Object.entries(plan.queued_before).map(
      ([source, n]) =>
        `${formatCounted(n, "increment")} of ${source} arrived before that moment, but had not been read by then, and ${n === 1 ? "is" : "are"} applied again.`,
    ),
    ...Object.entries(plan.comes_back).map(
      ([source, { length: n }]) =>
        `${formatCounted(n, "increment")} of ${source} that an earlier roll-back left out or dropped ${n === 1 ? "is" : "are"} applied again.`,
    ),
    ...(plan.closes_again > 0
      ? [`${formatCounted(plan.closes_again, "later close")} ${plan.closes_again === 1 ? "is" : "are"} kept and applied again.`]
      : []),
    ...(plan.rollback.closes_dropped > 0
      ? [`${formatCounted(plan.rollback.closes_dropped, "later close")} ${plan.rollback.closes_dropped === 1 ? "is" : "are"} dropped.`]
      : []),
  ];
}
