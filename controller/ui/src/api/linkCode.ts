/** Where links with a code lead; the service prints them. */
export const SIGN_IN_PATH = "/ui/sign-in";

/**
 * Take the code of a sign-in link out of the address, at once: neither the history, nor a reload,
 * nor a person who looks at the address bar gets it. Returns "" if there is none.
 */
export function takeLinkCode(
  place: Pick<Location, "pathname" | "hash">,
  history: Pick<History, "replaceState">,
): string {
  if (place.pathname !== SIGN_IN_PATH) return "";
  const code = new URLSearchParams(place.hash.slice(1)).get("code") ?? "";
  history.replaceState(null, "", "/ui/");
  return code;
}
