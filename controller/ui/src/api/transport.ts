import { heard, isOfGateway, unheard } from "@/api/reachable";

let onUnauthenticated: () => void = () => undefined;

/** Call a function whenever the service does not know the one who asks. */
export function whenUnauthenticated(call: () => void): void {
  onUnauthenticated = call;
}

/**
 * Return what every request carries.
 *
 * The browser sends the cookie of the session by itself; this header is what no form of another
 * page can send.
 */
export function authorization(): Record<string, string> {
  return { "X-CBP-Request": "1" };
}

/** Every request of the page goes through here, so that each shows whether the service answers and knows one. */
export async function ask(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  try {
    const response = await fetch(input, init);
    hear(response.status, response.headers.get("content-type") ?? "");
    return response;
  } catch (error) {
    // What the page itself gave up says nothing about the service.
    if (!(error instanceof DOMException && error.name === "AbortError")) unheard();
    throw error;
  }
}

/** Take note of an answer; for requests that `fetch` cannot make, such as an upload with progress. */
export function hear(status: number, contentType: string): void {
  if (isOfGateway(status, contentType)) unheard();
  else heard();
  if (status === 401) onUnauthenticated();
}
