/** The filters of the list of runs, as the address, the service and the command line have them. */

import type { Words } from "@/format/shell";

export const NO_FILTERS = {
  dataflow: "",
  stage: "",
  status: "",
  error: "",
  since: "",
  from: "",
  to: "",
};
export type Filters = typeof NO_FILTERS;

export const AGES = [
  { value: "", label: "Any time" },
  { value: "15m", label: "The last 15 minutes" },
  { value: "1h", label: "The last hour" },
  { value: "6h", label: "The last 6 hours" },
  { value: "1d", label: "The last day" },
  { value: "7d", label: "The last 7 days" },
  { value: "custom", label: "From … to …" },
];

const UNITS: Record<string, number> = { m: 60, h: 3600, d: 86_400 };

/** Return what the service is asked for; `now` is where ages count from. */
export function queryOf(filters: Filters, now: Date) {
  const status = filters.status === "" ? undefined : (filters.status as "INTENDED");
  return {
    dataflow: filters.dataflow || undefined,
    stage: filters.stage || undefined,
    status,
    error_code: filters.error || undefined,
    ...timesOf(filters, now),
  };
}

function timesOf(filters: Filters, now: Date): { since?: string; until?: string } {
  if (filters.since === "custom") {
    return { ...moment("since", filters.from), ...moment("until", filters.to) };
  }
  const unit = UNITS[filters.since.slice(-1)];
  const count = Number(filters.since.slice(0, -1));
  if (unit === undefined || !(count > 0)) return {};
  return { since: new Date(now.getTime() - count * unit * 1000).toISOString() };
}

function moment(name: "since" | "until", local: string): { since?: string; until?: string } {
  const at = new Date(local);
  return local === "" || Number.isNaN(at.getTime()) ? {} : { [name]: at.toISOString() };
}

/** Return the command that lists the same. */
export function commandOf(filters: Filters): Words {
  const times =
    filters.since === "custom"
      ? [...option("since", filters.from), ...option("until", filters.to)]
      : option("since", filters.since);
  return [
    "cbp",
    "runs",
    ...option("dataflow", filters.dataflow),
    ...option("stage", filters.stage),
    ...(filters.status === "FAILED" ? ["--failed"] : option("status", filters.status)),
    ...option("error-code", filters.error),
    ...times,
  ];
}

function option(name: string, value: string): Words {
  return value === "" ? [] : [`--${name}`, value];
}
