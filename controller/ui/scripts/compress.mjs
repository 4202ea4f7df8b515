// Compresses what the build made, prints its size, and fails when it is larger than the limit.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, gzipSync } from "node:zlib";

const LIMIT = 500_000;
const SMALLEST = 1_000;
const TEXT = new Set([".js", ".css", ".html", ".svg"]);

const bundle = fileURLToPath(new URL("../bundle", import.meta.url));
const files = readdirSync(bundle, { recursive: true })
  .map(String)
  .filter((name) => TEXT.has(extname(name)))
  .sort();

let total = 0;
for (const name of files) {
  const content = readFileSync(join(bundle, name));
  const gzip = gzipSync(content, { level: 9 });
  total += gzip.length;
  console.log(`${(gzip.length / 1000).toFixed(1).padStart(8)} kB  ${name}`);
  // index.html gets a nonce in every response, so it cannot be compressed before.
  if (content.length < SMALLEST || name === "index.html") continue;
  writeFileSync(join(bundle, `${name}.gz`), gzip);
  writeFileSync(join(bundle, `${name}.br`), brotliCompressSync(content));
}
console.log(`${(total / 1000).toFixed(1).padStart(8)} kB  in all, compressed by gzip (limit ${LIMIT / 1000} kB)`);
if (total > LIMIT) {
  console.error(`the page is too large: ${total} bytes, at most ${LIMIT} are allowed`);
  process.exit(1);
}
