import type { components } from "@/api/schema";
import { formatCounted, formatRelative } from "@/format/format";

export type Dataflow = components["schemas"]["DataflowSummary"];
export type Freshness = components["schemas"]["FreshnessOut"];

/** What helps a dataflow that is not up to date. */
export type Remedy = "retry" | "resume" | "look" | "decide";

/** Something that is not up to date: what, why, since when, what helps. */
export interface Trouble {
  dataflow: string;
  severity: "bad" | "warn" | "quiet";
  /** What, since when: a sentence without its end. */
  what: string;
  /** Why, in the service's words; may be empty. */
  why: string;
  /** The stage that it is about; "" means the whole dataflow. */
  stage: string;
  remedy: Remedy;
  /** The screen that has more about it. */
  to: string;
}

const SEVERITIES = { bad: 0, warn: 1, quiet: 2 } as const;

/** Return everything that is not up to date, the worst first. */
export function troublesOf(dataflows: readonly Dataflow[], now: Date): Trouble[] {
  return dataflows
    .flatMap((dataflow) => [
      ...troublesOfOne(dataflow, now),
      ...outsideOf(dataflow),
      ...refusedFilesOf(dataflow),
      ...setAsideOf(dataflow),
    ])
    .sort((left, right) => SEVERITIES[left.severity] - SEVERITIES[right.severity]);
}

/** A stage as far as it can be held by a person. */
interface Held {
  name: string;
  runs_with: string;
  paused_itself: boolean;
  waiting: string;
}

/** Return what needs attention in one dataflow; its stages say which of them an operator has paused. */
export function troublesIn(dataflow: Dataflow, stages: readonly Held[], now: Date): Trouble[] {
  const held = stages.filter((one) => one.paused_itself && one.runs_with === one.name);
  const others = troublesOf([dataflow], now).filter(({ severity }) => severity !== "quiet");
  const to = `/dataflows/${dataflow.name}/stages`;
  return [
    ...others,
    ...held.map(({ name, waiting }) => ({
      dataflow: dataflow.name,
      severity: "warn" as const,
      what: `The stage ${name} is paused`,
      why: waiting,
      stage: name,
      remedy: "resume" as const,
      to: `${to}/${name}`,
    })),
  ];
}

/** How the service begins what it says of a source or a sink. */
const PART = /^(source|sink) (\S+): /;

/** Failures outside the stages, which can hold beside any other; each leads to the screen of what fails. */
function outsideOf({ name, state, failing, troubles = [] }: Dataflow): Trouble[] {
  // What stops the dataflow as a whole is in its problem, which is shown as such.
  const whole = failing.length === 0 && (state === "stopped" || state === "broken");
  return troubles.filter((why) => !whole || PART.test(why)).map((why) => {
    const [, kind, part] = PART.exec(why) ?? [];
    const to = `/dataflows/${name}`;
    return {
      dataflow: name,
      severity: "warn",
      what: part === undefined ? `${name} has trouble` : `${name}: the ${kind} ${part} has trouble`,
      why: part === undefined ? why : why.slice(`${kind} ${part}: `.length),
      stage: "",
      remedy: "look",
      to: part === undefined ? to : kind === "sink" ? `${to}/results` : `${to}/sources?source=${encodeURIComponent(part)}`,
    };
  });
}

/** Files in quarantine: the rest continues, but somebody has to decide. */
function refusedFilesOf({ name, quarantined }: Dataflow): Trouble[] {
  return Object.entries(quarantined).map(([source, files]) => ({
    dataflow: name,
    severity: "warn",
    what: `${name}: ${formatCounted(files, "file")} of ${source} ${files === 1 ? "is" : "are"} in quarantine`,
    why: `${files === 1 ? "Its" : "Their"} records are not applied until you correct, admit or discard the ${files === 1 ? "file" : "files"}.`,
    stage: "",
    remedy: "decide",
    to: `/dataflows/${name}/sources?source=${encodeURIComponent(source)}&status=quarantined`,
  }));
}

/** Records that a stage's code fails on: the others continue, but somebody has to mend the code or drop them. */
function setAsideOf({ name, set_aside }: Dataflow): Trouble[] {
  return Object.entries(set_aside).map(([stage, records]) => ({
    dataflow: name,
    severity: "warn",
    what: `${name}: ${formatCounted(records, "record")} of the stage ${stage} ${records === 1 ? "is" : "are"} set aside`,
    why: `${records === 1 ? "It is" : "They are"} not applied until you give the ${records === 1 ? "record" : "records"} back.`,
    stage,
    remedy: "decide",
    to: `/dataflows/${name}/stages/${stage}`,
  }));
}

function troublesOfOne(dataflow: Dataflow, now: Date): Trouble[] {
  const { name, state } = dataflow;
  const to = `/dataflows/${name}`;
  if (state === "paused") {
    const waiting = dataflow.queued_increments;
    return [
      {
        dataflow: name,
        severity: "quiet",
        what: `${name} is paused${dataflow.problem === null ? "" : " in part"}${waiting > 0 ? `, and ${formatCounted(waiting, "increment waits", "increments wait")}` : ""}`,
        why: dataflow.problem ?? "",
        stage: "",
        remedy: "resume",
        to,
      },
    ];
  }
  if (dataflow.failing.length > 0) {
    return dataflow.failing.map((failing) => {
      const since = failing.since === null ? "" : `, since ${formatRelative(failing.since, now)}`;
      const next = nextTry(failing.retry_at, now);
      const tries = failing.tries > 1 ? ` (${failing.tries} tries)` : "";
      return {
        dataflow: name,
        severity: state === "stopped" || state === "broken" ? "bad" : "warn",
        what: `${name}: the stage ${failing.stage} ${state === "stopped" ? "has stopped" : "fails"}${since}${tries}${next}`,
        why: messageOf(failing.error),
        stage: failing.stage,
        remedy: "retry",
        to: `${to}/stages/${failing.stage}`,
      } as const;
    });
  }
  // All that is wrong is outside its stages, and shown as such. A service of an earlier release does not say so.
  if (state === "ok" || (state === "retrying" && dataflow.problem_code === "outside")) return [];
  return [
    {
      dataflow: name,
      severity: state === "retrying" ? "warn" : "bad",
      what: `${name} ${state === "retrying" ? "has trouble" : `is ${state}`}`,
      why: dataflow.problem ?? "",
      stage: "",
      remedy: "look",
      to,
    },
  ];
}

function nextTry(at: string | null, now: Date): string {
  if (at === null) return "";
  const due = new Date(at).getTime() - now.getTime() < 2_000;
  return due ? "; retried now" : `; retried ${formatRelative(at, now)}`;
}

/** Return the message of an error that the service gives as an object. */
export function messageOf(error: Record<string, unknown> | null): string {
  const message = error?.["message"];
  return typeof message === "string" ? message : "";
}

/** Return the one sentence on top: whether the service can work and all is up to date, as it says to every client. */
export function headline({ state, dataflows, service }: Freshness, troubles: readonly Trouble[]): string {
  if (service.length > 0) return `The service cannot work: ${service.join("; ")}.`;
  const behind = dataflows.filter((one) => one.state !== "up_to_date").length;
  if (behind > 0) {
    const then = state === "stuck" ? "an operator is needed" : "the service is catching up";
    return `Not up to date: ${behind} of ${formatCounted(dataflows.length, "dataflow")}; ${then}.`;
  }
  const loud = new Set(troubles.filter(({ severity }) => severity !== "quiet").map((one) => one.dataflow));
  if (loud.size === 0) return "Everything is up to date.";
  return `Everything is up to date, but ${formatCounted(loud.size, "dataflow needs", "dataflows need")} attention.`;
}
