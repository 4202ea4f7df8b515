/** Return the address of the same screen at the instance that leads; null if it is no web address. Pure. */
export function leaderLink(leader: string, screen: string): string | null {
  if (!URL.canParse(leader)) return null;
  const address = new URL(leader);
  if (address.protocol !== "http:" && address.protocol !== "https:") return null;
  return `${address.origin}/ui${screen}`;
}
