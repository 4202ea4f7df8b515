import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { renderToStaticMarkup } from "react-dom/server";
import { createServer } from "vite";
import { expect, it } from "vitest";

import { jsxDEV } from "@/visible/devElements";

const MINUTE = 60_000;

it("makes text visible in development, too", () => {
  const element = jsxDEV("td", { children: "a\u202eb" }, undefined, false);
  expect(renderToStaticMarkup(element)).toBe("<td>a\\u202eb</td>");
});

it("makes all elements of the development server, those of the libraries too", { timeout: MINUTE }, async () => {
  const cacheDir = await mkdtemp(join(tmpdir(), "cbp-dev-"));
  const server = await createServer({
    configFile: "vite.config.ts",
    cacheDir,
    logLevel: "error",
    appType: "custom",
    server: { middlewareMode: true, watch: null, ws: false },
  });
  try {
    const { client } = server.environments;
    const source = await client.transformRequest("/src/app/NotFound.tsx");
    expect(source?.code).toContain('from "/ui/src/visible/devElements.ts"');
    await client.depsOptimizer?.scanProcessing;
    const libraries = Object.values(client.depsOptimizer?.metadata.discovered ?? {});
    await Promise.all(libraries.map((one) => one.processing));
    const makers = await importers(join(cacheDir, "deps"), /from "\.\/elements-/);
    expect(makers).toContain("@mantine_notifications.js");
    const direct = await importers(join(cacheDir, "deps"), /from "\.\/jsx-runtime-/);
    expect(direct.filter((name) => !/^(elements-|react_jsx)/.test(name))).toEqual([]);
  } finally {
    await server.close();
    await rm(cacheDir, { recursive: true });
  }
});

/** Return the names of the bundled libraries whose text has something. */
async function importers(folder: string, what: RegExp): Promise<string[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".js"));
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  return names.filter((_, at) => what.test(texts[at] ?? ""));
}
