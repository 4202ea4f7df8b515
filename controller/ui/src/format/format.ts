/** Numbers, sizes, durations and moments as text. Pure; what is unknown is "–". */

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** "1,234,567". */
export function formatCount(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

/** "1.23M", for places with little room. */
export function formatCompact(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  return Math.abs(value) < 10_000 ? whole.format(value) : compact.format(value);
}

/** "1 increment", "2 increments". */
export function formatCounted(value: number, noun: string, nouns = `${noun}s`): string {
  return `${formatCount(value)} ${value === 1 ? noun : nouns}`;
}

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

/** "1.2 MB"; units of 1,000, as the command line has them. */
export function formatBytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= 999.5 && unit < BYTE_UNITS.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${digits(left, unit === 0)} ${BYTE_UNITS[unit]}`;
}

/** "12 ms", "3.4 s", "5 min 6 s", "7 h 8 min", "9 d 1 h". */
export function formatSeconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  const sign = value < 0 ? "-" : "";
  const seconds = Math.abs(value);
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995) return `${sign}${digits(seconds * 1000, seconds >= 0.01)} ms`;
  if (seconds < 59.5) return `${sign}${digits(seconds)} s`;
  const [large, small, names] = parts(seconds);
  return `${sign}${large} ${names[0]}${small === 0 ? "" : ` ${small} ${names[1]}`}`;
}

/** "just now", "12 s ago", "5 min ago", "in 3 h"; one unit, for a glance. */
export function formatRelative(moment: Date | string, now: Date): string {
  const seconds = (now.getTime() - new Date(moment).getTime()) / 1000;
  const age = Math.abs(seconds);
  if (age < 2) return "just now";
  const text = oneUnit(age);
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** "2026-11-23 05:12:07.123 UTC+01:00", in the time zone of who looks. */
export function formatAbsolute(moment: Date | string): string {
  const at = new Date(moment);
  const pad = (value: number, width = 2) => String(value).padStart(width, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const behind = -at.getTimezoneOffset();
  const zone = behind === 0 ? "UTC" : `UTC${behind < 0 ? "-" : "+"}${pad(Math.floor(Math.abs(behind) / 60))}:${pad(Math.abs(behind) % 60)}`;
  return `${day} ${time}.${pad(at.getMilliseconds(), 3)} ${zone}`;
}

/** "12.3%"; nothing of nothing is unknown. */
export function formatShare(part: number, all: number): string {
  return all === 0 ? UNKNOWN : `${digits((100 * part) / all)}%`;
}

function digits(value: number, isWhole = false): string {
  if (isWhole || value >= 99.5) return whole.format(value);
  return String(Number(value.toPrecision(value >= 9.95 ? 3 : 2)));
}

function parts(seconds: number): [number, number, readonly [string, string]] {
  const minutes = Math.round(seconds) / 60;
  if (minutes < 60) return [Math.floor(minutes), Math.round(seconds) % 60, ["min", "s"]];
  const hours = Math.round(seconds / 60) / 60;
  if (hours < 48) return [Math.floor(hours), Math.round(seconds / 60) % 60, ["h", "min"]];
  const inHours = Math.round(seconds / 3600);
  return [Math.floor(inHours / 24), inHours % 24, ["d", "h"]];
}

function oneUnit(seconds: number): string {
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  if (seconds < 3570) return `${Math.round(seconds / 60)} min`;
  if (seconds < 171_000) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}
