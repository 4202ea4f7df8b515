import { onlineManager, useQueryClient } from "@tanstack/react-query";
import {
  createContext,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useState,
  type ReactNode,
} from "react";

import { bodyOf, client } from "@/api/client";
import { takeLinkCode } from "@/api/linkCode";
import { problemOf } from "@/api/problem";
import type { components } from "@/api/schema";
import { whenUnauthenticated } from "@/api/transport";
import { dropDrafts, holdDrafts } from "@/hooks/drafts";

/** What one may do; each includes those before it. */
export const SCOPES = ["viewer", "operator", "admin"] as const;
export type Scope = (typeof SCOPES)[number];

type Who = components["schemas"]["CallerOut"];

export interface Session {
  /** Whether the service was not yet asked who one is. */
  asking: boolean;
  /** Whether somebody is signed in. */
  signedIn: boolean;
  /** The name that is shown in the header; "" if no one is signed in. */
  name: string;
  scope: Scope | null;
  /** When the session ends. */
  until: string | null;
  /** Whether it began while the database had no room for it, and so ends with the service's process. */
  inMemory: boolean;
  /** Whether a session has ended while the page was open. */
  ended: boolean;
  /** Why the link that one came by did not sign in; null: it did, or there was none. */
  refusal: unknown;
  /** Tell whether the one who is signed in may do what needs a scope. */
  can: (needed: Scope) => boolean;
  /** Sign in with a token; rejects with a ProblemError if the service does not know it. */
  signIn: (token: string) => Promise<void>;
  signOut: () => void;
}

const Context = createContext<Session | null>(null);

/** Tell whether a scope includes another. */
export function includes(scope: Scope | null, needed: Scope): boolean {
  return scope !== null && SCOPES.indexOf(scope) >= SCOPES.indexOf(needed);
}

// Before the router reads the address.
const linkCode = takeLinkCode(window.location, window.history);

/**
 * Whether this browser has signed in before, so that asking is worth it. The secret itself is in a
 * cookie that no script can read.
 */
const HINT = "cbp-signed-in";

function hinted(): boolean {
  try {
    return window.localStorage.getItem(HINT) !== null;
  } catch {
    return true;
  }
}

function hint(signedIn: boolean): void {
  try {
    if (signedIn) window.localStorage.setItem(HINT, "yes");
    else window.localStorage.removeItem(HINT);
  } catch {
    // A browser without storage asks at each visit.
  }
}

interface Begun {
  who: Who | null;
  refusal: unknown;
}

let begun: Promise<Begun> | undefined;

/** Sign in by the link that one came by, or else find out who one is; once for each visit. */
function begin(): Promise<Begun> {
  begun ??= beginOnce();
  return begun;
}

async function beginOnce(): Promise<Begun> {
  let refusal: unknown = null;
  if (linkCode !== "") {
    try {
      return { who: await enter({ code: linkCode }), refusal };
    } catch (refused) {
      refusal = refused;
    }
  }
  if (!hinted()) return { who: null, refusal };
  try {
    return { who: await bodyOf(client.GET("/api/v1/session")), refusal: null };
  } catch (refused) {
    const unknown = problemOf(refused).status === 401;
    if (unknown) hint(false);
    return { who: null, refusal: refusal ?? (unknown ? null : refused) };
  }
}

async function enter(body: { code: string } | { token: string }): Promise<Who> {
  const who = await bodyOf(client.POST("/api/v1/session", { body }));
  hint(true);
  return who;
}

const OUT: Begun = { who: null, refusal: null };

/** Holds who is signed in. */
export function SessionProvider({ children }: { children: ReactNode }) {
  const [asking, setAsking] = useState(true);
  const [{ who, refusal }, setState] = useState<Begun>(OUT);
  const [ended, setEnded] = useState(false);
  const queries = useQueryClient();

  useEffect(() => {
    let gone = false;
    void begin().then((started) => {
      if (gone) return;
      setState(started);
      setAsking(false);
    });
    return () => {
      gone = true;
    };
  }, []);

  const leave = useCallback(() => {
    hint(false);
    setState(OUT);
    queries.clear();
  }, [queries]);

  useEffect(
    () =>
      whenUnauthenticated(() => {
        if (who === null) return;
        setEnded(true);
        holdDrafts();
        leave();
      }),
    [who, leave],
  );

  const signIn = useCallback(async (token: string) => {
    const entered = await enter({ token });
    setEnded(false);
    setState({ who: entered, refusal: null });
  }, []);

  const signOut = useCallback(() => {
    setEnded(false);
    // What is asked while the session ends would come back as refused.
    onlineManager.setOnline(false);
    const underWay = queries.getQueryCache().findAll({ fetchStatus: "fetching" });
    void Promise.allSettled(underWay.map((query) => query.promise))
      .then(() => client.DELETE("/api/v1/session"))
      .finally(() => {
        dropDrafts();
        leave();
        onlineManager.setOnline(true);
      });
  }, [leave, queries]);

  const session = useMemo<Session>(
    () => ({
      asking,
      signedIn: who !== null,
      name: who?.actor ?? "",
      scope: who?.scope ?? null,
      until: who?.expires_at ?? null,
      inMemory: who?.in_memory ?? false,
      ended,
      refusal,
      can: (needed) => includes(who?.scope ?? null, needed),
      signIn,
      signOut,
    }),
    [asking, who, ended, refusal, signIn, signOut],
  );
  return <Context value={session}>{children}</Context>;
}

/** Return who is signed in, and what they may do. */
export function useSession(): Session {
  const session = useContext(Context);
  if (session === null) throw new Error("useSession needs a SessionProvider");
  return session;
}
