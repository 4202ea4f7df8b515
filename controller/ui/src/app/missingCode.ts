/**
 * Tell whether a screen failed because its code could not be fetched: the service does not answer, or
 * serves a newer page, whose files have other names. Pure.
 */
export function isMissingCode(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // In the words of Chromium, Firefox, Safari and Vite.
  return /dynamically imported module|Importing a module script failed|Unable to preload CSS/.test(error.message);
}

const AGAIN_MILLISECONDS = 30_000;

/** Return whether a page that was reloaded at a moment can be reloaded again, and not for ever. Pure. */
export function mayReload(last: string | null, now: number): boolean {
  const at = Number(last ?? 0);
  return !Number.isFinite(at) || Math.abs(now - at) > AGAIN_MILLISECONDS;
}
