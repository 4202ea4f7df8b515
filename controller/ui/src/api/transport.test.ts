import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { expect, it } from "vitest";

import { isOfGateway } from "@/api/reachable";

const SOURCES = fileURLToPath(new URL("..", import.meta.url));

it("is the only way to the service, so that no request hides that it is silent, or that a session ended", () => {
  const others = readdirSync(SOURCES, { recursive: true })
    .map(String)
    .filter((name) => /\.tsx?$/.test(name) && !/\.test\.|\.d\.ts$/.test(name))
    .filter((name) => /\b(fetch\(|new XMLHttpRequest|new EventSource|new WebSocket|sendBeacon\()/.test(readFileSync(SOURCES + name, "utf8")))
    .sort();
  // The last one reports by `hear`: only it can show how much of a file has gone.
  expect(others).toEqual(["api/reachable.ts", "api/transport.ts", "screens/sources/upload.ts"]);
});

it("separates a proxy that cannot reach the service from the service that refuses", () => {
  expect(isOfGateway(502, "text/html")).toBe(true);
  expect(isOfGateway(503, "application/problem+json")).toBe(false);
  expect(isOfGateway(500, "text/html")).toBe(false);
});
