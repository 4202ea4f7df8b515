import { parseExact } from "@/api/exactJson";
import { problemFromBody, ProblemError, unreachable } from "@/api/problem";
import { ask, authorization } from "@/api/transport";

/** A record of a flow or a state; whole numbers beyond 2^53 are bigints. */
export type DataRecord = Record<string, unknown>;

export interface RecordsPage {
  items: DataRecord[];
  cursor: string | null;
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

export type Query = readonly (readonly [string, string | number | boolean | null | undefined])[];

/** Return the address of a resource with a query; parts of the path are quoted. */
export function addressOf(path: readonly string[], query: Query = []): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of query) {
    if (value !== null && value !== undefined && value !== "") parameters.append(name, String(value));
  }
  const asked = parameters.toString();
  return `/api/v1/${path.map(encodeURIComponent).join("/")}${asked === "" ? "" : `?${asked}`}`;
}

/** Ask for JSON whose numbers must stay as they are; the answer suits `useApi` and `useAction`. */
export async function exactly<T>(address: string, init: RequestInit = {}): Promise<Answer<T>> {
  let response: Response;
  try {
    response = await ask(address, {
      ...init,
      credentials: "same-origin",
      headers: { ...authorization(), ...(init.headers as Record<string, string> | undefined) },
    });
  } catch {
    throw new ProblemError(unreachable(address));
  }
  const text = await response.text();
  const body = text === "" ? undefined : parsed(text);
  return response.ok ? { data: body as T, response } : { error: body, response };
}

/** Fetch a file and hand it to the browser's downloads. */
export async function download(address: string, name: string): Promise<void> {
  const response = await ask(address, { credentials: "same-origin", headers: authorization() });
  if (!response.ok) {
    throw new ProblemError(problemFromBody(parsed(await response.text()), response));
  }
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function parsed(text: string): unknown {
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}
