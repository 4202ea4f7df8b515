/** Return the nonce that the policy of contents allows for style elements; "" in development. */
export function styleNonce(): string {
  const element = document.querySelector<HTMLMetaElement>('meta[name="style-nonce"]');
  const nonce = element?.content ?? "";
  return nonce.startsWith("%") ? "" : nonce;
}
