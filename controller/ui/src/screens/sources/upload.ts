import { problemFromBody, ProblemError, unreachable } from "@/api/problem";
import { unheard } from "@/api/reachable";
import type { components } from "@/api/schema";
import { authorization, hear } from "@/api/transport";

export type Claim = components["schemas"]["ClaimOut"];

/**
 * Send a file, and tell how much of it has gone.
 *
 * @throws ProblemError if the service refuses it or does not answer.
 */
export function sendFile(address: string, content: Blob, headers: Record<string, string>, onSent: (bytes: number) => void): Promise<Claim> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", address);
    const all = { "Content-Type": "application/octet-stream", ...authorization(), ...headers };
    for (const [name, value] of Object.entries(all)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onSent(event.loaded);
    request.onerror = () => {
      unheard();
      reject(new ProblemError(unreachable(address)));
    };
    request.onload = () => {
      hear(request.status, request.getResponseHeader("content-type") ?? "");
      const body = parsed(request.responseText);
      if (request.status >= 200 && request.status < 300) resolve(body as Claim);
      else reject(new ProblemError(problemFromBody(body, new Response(null, { status: request.status }))));
    };
    request.send(content);
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Return a reason in a line, without the name of the file, which is shown beside it. Pure. */
export function reasonText(reason: Record<string, unknown>): string {
  const { line, column, cause, message, code } = reason;
  if (typeof cause !== "string" || typeof line !== "number") return String(message ?? code ?? "");
  const place = typeof column === "string" ? `line ${line}, column ${column}` : `line ${line}`;
  return `${place}: ${cause}`;
}

/** One file on its way, and what became of it. */
export interface Sending {
  id: string;
  name: string;
  bytes: number;
  sent: number;
  claim?: Claim;
  problem?: ProblemError;
}

/** Tell whether the service has yet to say what becomes of a file. Pure. */
export function isOpen({ claim }: Sending): boolean {
  return claim?.status === "claiming" || claim?.status === "claimed";
}

/** Return uploads with what has become of them since they were acknowledged. Pure. */
export function followed(sendings: readonly Sending[], claims: readonly Claim[]): Sending[] {
  const newest = new Map(claims.map((claim) => [claim.id, claim]));
  return sendings.map((one) => {
    const claim = one.claim === undefined ? undefined : newest.get(one.claim.id);
    return claim === undefined ? one : { ...one, claim };
  });
}

/** Return the word for what an upload became. Pure. */
export function outcomeOf(sending: Sending): { state: string; word: string } {
  if (sending.problem !== undefined) return { state: "failed", word: "Refused" };
  if (sending.claim === undefined) return { state: "running", word: "Sending" };
  const status = sending.claim.status;
  if (status === "duplicate") return { state: "skipped", word: "Duplicate" };
  if (status === "quarantined") return { state: "quarantined", word: "In quarantine" };
  if (status === "accepted") return { state: "accepted", word: "Accepted" };
  return { state: "claimed", word: "Received" };
}
