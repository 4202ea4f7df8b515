import type { QueryKey } from "@tanstack/react-query";

import { client } from "@/api/client";
import { heard, unheard } from "@/api/reachable";
import type { components } from "@/api/schema";

export type ChangeEvent = components["schemas"]["EventOut"];

/** One message of the stream; `data` is "" if it only moved the id on. */
export interface Message {
  event: string;
  id: string;
  data: string;
}

/**
 * Take the whole messages from the beginning of a text, and return what is left of it.
 *
 * As the HTML standard says under "Server-sent events", without the forms that our service does
 * not send (carriage returns, a byte order mark).
 */
export function takeMessages(text: string): { messages: Message[]; rest: string } {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const messages = blocks.map((block) => {
    const fields = { event: "message", id: "", data: "" };
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "event") fields.event = value;
      if (name === "id") fields.id = value;
      if (name === "data") data.push(value);
    }
    return { ...fields, data: data.join("\n") };
  });
  return { messages, rest };
}

/** What changed since the last look: of which dataflows, or of all. */
export interface Changed {
  all: boolean;
  dataflows: ReadonlySet<string>;
}

export const NOTHING: Changed = { all: false, dataflows: new Set() };

/** Return what changed, with one more event; it grows with the dataflows, not with the events. */
export function withEvent(changed: Changed, event: Pick<ChangeEvent, "dataflow">): Changed {
  if (changed.all || changed.dataflows.has(event.dataflow)) return changed;
  if (event.dataflow === "") return { ...changed, all: true };
  return { ...changed, dataflows: new Set([...changed.dataflows, event.dataflow]) };
}

/** Resources that no event changes. */
const FIXED = new Set(["session", "settings", "translators", "version"]);

/**
 * Tell whether a query has to be asked again. A key is the resource, then perhaps a dataflow: a
 * query of another dataflow is left alone, and whatever cannot be decided is asked again.
 */
export function concerns(changed: Changed, key: QueryKey, known: ReadonlySet<string>): boolean {
  if (FIXED.has(String(key[0]))) return false;
  if (changed.all) return true;
  const second = key[1];
  if (typeof second === "string" && known.has(second)) return changed.dataflows.has(second);
  return changed.dataflows.size > 0;
}

/**
 * Read the stream until it ends, and call back with each message.
 *
 * It is a request like any other, not an `EventSource`: so it carries what signs requests in, and
 * its refusal has a status.
 *
 * @throws if the service refuses or cannot be reached, or the connection breaks.
 */
export async function readStream(
  after: string,
  signal: AbortSignal,
  onOpen: () => void,
  onMessage: (message: Message) => void,
): Promise<void> {
  const { response } = await client.GET("/api/v1/events", {
    params: { query: after === "" ? {} : { after } },
    parseAs: "stream",
    signal,
  });
  if (!response.ok || response.body === null) throw new Error(`status ${response.status}`);
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await inTime(reader.read());
    if (done) return;
    heard();
    const { messages, rest } = takeMessages(text + value);
    text = rest;
    messages.forEach(onMessage);
  }
}

/** The service says something every 15 seconds at least; a stream that says nothing for longer is dead. */
const SILENCE_MILLISECONDS = 40_000;

/** Wait for the next part of a stream, but not for ever: a cable that was pulled ends no stream. */
async function inTime<T>(next: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      unheard();
      reject(new Error("the stream is silent"));
    }, SILENCE_MILLISECONDS);
  });
  try {
    return await Promise.race([next, silence]);
  } finally {
    clearTimeout(timer);
  }
}
