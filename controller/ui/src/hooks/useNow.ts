import { useSyncExternalStore } from "react";

const STEP_MILLISECONDS = 1_000;

let now = new Date();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = new Date();
    for (const call of listeners) call();
  }, STEP_MILLISECONDS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** Return the time, to the second; one timer serves the whole page. */
export function useNow(): Date {
  return useSyncExternalStore(subscribe, () => now);
}
