import { useSyncExternalStore } from "react";

/** That the service does not answer: when it last did, and when a request was first lost. */
export interface Lost {
  lastAnswer: Date;
  since: Date;
}

const PING_MILLISECONDS = 2_000;

let lost: Lost | null = null;
let lastAnswer = new Date();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

/** Tell that the service has answered, whatever it said. */
export function heard(): void {
  lastAnswer = new Date();
  if (lost === null) return;
  lost = null;
  clearInterval(timer);
  announce();
}

/** Tell that a request, or the stream, got no answer; the page asks until there is one. */
export function unheard(): void {
  if (lost !== null) return;
  lost = { lastAnswer, since: new Date() };
  timer = setInterval(() => void ping(), PING_MILLISECONDS);
  announce();
}

/** Return since when the service does not answer; null: it does, as far as the page knows. */
export function useLost(): Lost | null {
  return useSyncExternalStore(subscribe, () => lost);
}

/** Tell whether an answer comes from what is in front of the service, which it cannot reach. Pure. */
export function isOfGateway(status: number, contentType: string): boolean {
  return [502, 503, 504].includes(status) && !contentType.includes("json");
}

async function ping(): Promise<void> {
  try {
    const answer = await fetch("/api/v1/health/live", { signal: AbortSignal.timeout(PING_MILLISECONDS * 2) });
    if (answer.ok) heard();
  } catch {
    // The next one asks again.
  }
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function announce(): void {
  for (const call of listeners) call();
}
