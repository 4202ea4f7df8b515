import { fileURLToPath } from "node:url";

import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

// `npm run dev` shows the sources with the data of a running service.
const service = process.env["CBP_URL"] ?? "http://127.0.0.1:8420";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
/** What makes the elements in place of React's own modules, for sources and libraries, built or not. */
const ELEMENTS: Readonly<Record<string, string>> = {
  "react/jsx-runtime": here("./src/visible/elements.ts"),
  "react/jsx-dev-runtime": here("./src/visible/devElements.ts"),
};
const OWN = new Set(Object.values(ELEMENTS));

/** Makes all elements by `src/visible`, those of libraries too. */
function visibleText(): Plugin {
  return {
    name: "visible-text",
    enforce: "pre",
    resolveId: (source, importer) => (OWN.has(importer ?? "") ? null : (ELEMENTS[source] ?? null)),
  };
}

export default defineConfig({
  base: "/ui/",
  plugins: [visibleText(), react()],
  resolve: { alias: { "@": here("./src") } },
  // The development server bundles the libraries once, apart from the sources, and keeps them:
  // `npm run dev -- --force` after a change of `src/visible`.
  optimizeDeps: { rolldownOptions: { plugins: [visibleText()] } },
  build: {
    outDir: "bundle",
    emptyOutDir: true,
    target: "es2022",
    // A data: address would need a wider policy of contents.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
    // Seven characters instead of eight: each chunk names others, and names do not compress.
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name]-[hash:7].js",
        chunkFileNames: "assets/[name]-[hash:7].js",
        assetFileNames: "assets/[name]-[hash:7][extname]",
      },
    },
  },
  server: { proxy: { "/api": service } },
  test: { environment: "node", include: ["src/**/*.test.{ts,tsx}"] },
});
