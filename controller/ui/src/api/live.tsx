import { useQueryClient } from "@tanstack/react-query";
import {
  createContext,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useState,
  useSyncExternalStore,
  type ReactNode,
} from "react";

import {
  concerns,
  NOTHING,
  readStream,
  withEvent,
  type ChangeEvent,
  type Changed,
  type Message,
} from "@/api/eventStream";
import { useSession } from "@/api/session";

/** How often a screen asks again while no stream reports changes. */
export const POLL_MILLISECONDS = 5_000;
/** How often it asks for what changes without an event, such as a lag. */
export const REFETCH_MILLISECONDS = 15_000;
/** No query is asked again sooner, however many events come. */
const SETTLE_MILLISECONDS = 2_000;
const RETRY_MILLISECONDS = 2_000;
const FAILURES_UNTIL_POLLING = 3;

/**
 * live: the stream reports changes; reconnecting: it broke, and comes again; polling: it does not
 * come; paused: a person holds the page still.
 */
export type LiveState = "live" | "reconnecting" | "polling" | "paused";

interface Live {
  /** Whether the page follows the service; if not, what it shows does not change. */
  live: boolean;
  state: LiveState;
  /** When it was paused; null: it is not. */
  pausedSince: Date | null;
  setLive: (live: boolean) => void;
  toggle: () => void;
}

const Context = createContext<Live | null>(null);

/** Follows the service: one stream for the whole page. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const [pausedSince, setPausedSince] = useState<Date | null>(null);
  const setLive = useCallback((live: boolean) => setPausedSince(live ? null : new Date()), []);
  const live = pausedSince === null;
  const toggle = useCallback(
    () => setPausedSince((since) => (since === null ? new Date() : null)),
    [],
  );
  const visible = useVisible();
  const { signedIn } = useSession();
  const stream = useStream(live && visible && signedIn);
  const state: LiveState = live ? stream : "paused";
  const value = useMemo(
    () => ({ live, state, pausedSince, setLive, toggle }),
    [live, state, pausedSince, setLive, toggle],
  );
  return <Context value={value}>{children}</Context>;
}

/** Return whether the page is live, and what switches it. */
export function useLive(): Live {
  const live = useContext(Context);
  if (live === null) throw new Error("useLive needs a LiveProvider");
  return live;
}

function subscribeVisibility(listener: () => void): () => void {
  document.addEventListener("visibilitychange", listener);
  return () => document.removeEventListener("visibilitychange", listener);
}

function useVisible(): boolean {
  return useSyncExternalStore(subscribeVisibility, () => document.visibilityState !== "hidden");
}

/** Id of the last event, kept over pauses, so that what was missed is known. */
let lastId = "";

/** Follow the stream while `active`, and ask again for what it reports. */
function useStream(active: boolean): LiveState {
  const queries = useQueryClient();
  const [state, setState] = useState<LiveState>("reconnecting");

  useEffect(() => {
    if (!active) return undefined;
    const stop = new AbortController();
    let changed: Changed = NOTHING;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let settled = 0;

    const flush = () => {
      timer = undefined;
      settled = performance.now();
      const due = changed;
      changed = NOTHING;
      const known = knownDataflows(queries.getQueryData(["dataflows"]));
      void queries.invalidateQueries({ predicate: (one) => concerns(due, one.queryKey, known) });
    };
    const change = (event: Pick<ChangeEvent, "dataflow">) => {
      changed = withEvent(changed, event);
      // Events come in groups: a run's start, its end, what it wrote.
      const wait = Math.max(100, settled + SETTLE_MILLISECONDS - performance.now());
      timer ??= setTimeout(flush, wait);
    };
    const hear = (message: Message) => {
      if (message.id !== "") lastId = message.id;
      if (message.event === "changed") change(JSON.parse(message.data) as ChangeEvent);
      // What was shown before the first event, or behind a gap, may be old.
      if (message.event === "reset" || message.event === "begin") change({ dataflow: "" });
    };
    const follow = async () => {
      for (let failures = 0; !stop.signal.aborted; ) {
        try {
          await readStream(
            lastId,
            stop.signal,
            () => {
              failures = 0;
              setState("live");
            },
            hear,
          );
        } catch {
          failures += 1;
        }
        if (stop.signal.aborted) return;
        if (failures > 0) setState(failures < FAILURES_UNTIL_POLLING ? "reconnecting" : "polling");
        await new Promise((resolve) => setTimeout(resolve, RETRY_MILLISECONDS));
      }
    };
    void follow();
    return () => {
      stop.abort();
      clearTimeout(timer);
      // Reported, but not asked for yet: the next stream begins after it.
      if (changed !== NOTHING) lastId = "";
    };
  }, [active, queries]);

  return state;
}

/** Return the names in the list of dataflows, as far as it was asked for. */
function knownDataflows(answer: unknown): ReadonlySet<string> {
  const items = (answer as { items?: { name: string }[] } | undefined)?.items ?? [];
  return new Set(items.map((one) => one.name));
}
