import { useEffect, useState } from "react";

/** Texts under work, by place; and those that an ended session interrupted. In memory only. */
const live = new Map<string, string>();
const held = new Map<string, string>();

/** Hold what is being written, since the session has ended and the screens go. */
export function holdDrafts(): void {
  for (const [place, text] of live) held.set(place, text);
}

/** Forget all texts: who signs out leaves nothing behind. */
export function dropDrafts(): void {
  live.clear();
  held.clear();
}

/** Return a text that somebody writes at length, and what changes it; it outlasts the end of a session. */
export function useDraft(place: string, initial: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => held.get(place) ?? initial);
  useEffect(() => {
    held.delete(place);
    live.set(place, text);
    return () => {
      live.delete(place);
    };
  }, [place, text]);
  return [text, setText];
}
