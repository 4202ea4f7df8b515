import type { components } from "@/api/schema";
import { formatBytes, formatCounted } from "@/format/format";
import type { Words } from "@/format/shell";

type Heap = components["schemas"]["HeapOut"];
type Compaction = components["schemas"]["CompactionOut"];
type Scrub = components["schemas"]["ScrubOut"];

/** Return the command to begin with when a dataflow makes no progress. Pure. */
export function remedy(state: string, reason: string, dataflow: string): Words {
  if (reason.includes("damaged")) return ["cbp", "help", "damage"];
  return ["cbp", state === "stopped" ? "resume" : "waiting", dataflow];
}

/** Return what a collection removes, as one sentence. Pure. */
export function garbageInWords(heaps: readonly Heap[]): string {
  const going = heaps.filter((heap) => heap.goes);
  const files = going.reduce((all, heap) => all + (heap.files ?? 0), 0);
  const bytes = going.reduce((all, heap) => all + (heap.bytes ?? 0), 0);
  if (files === 0) return "No file can be removed now.";
  return `${formatCounted(files, "file")} (${formatBytes(bytes)}) can be removed now.`;
}

/** Return what a compaction saved; a larger file than before saves files only. Pure. */
export function savedInWords({ files_before, files_after, bytes_before, bytes_after }: Compaction): string {
  const files = formatCounted(files_before - files_after, "file");
  const bytes = bytes_before === null ? 0 : bytes_before - bytes_after;
  return bytes > 0 ? `${files}, ${formatBytes(bytes)}` : files;
}

/** Return the share of a scrub that is done, in percent; null: not known. Pure. */
export function scrubShare(scrub: Scrub): number | null {
  if (scrub.bytes_total === 0) return null;
  return Math.min(100, (100 * scrub.bytes) / scrub.bytes_total);
}

/** Return how far a scrub is, or what it found. Pure. */
export function scrubInWords(scrub: Scrub): string {
  const read = `${formatCounted(scrub.files, "file")}, ${formatBytes(scrub.bytes)}`;
  switch (scrub.status) {
    case "never":
      return "No full pass has been completed yet. The service reads all files by itself, slowly.";
    case "running":
      return scrub.bytes_total === 0
        ? `Read so far: ${read}.`
        : `Read so far: ${read} of ${formatBytes(scrub.bytes_total)}.`;
    case "whole":
      return `No file is damaged (${read} read).`;
    case "damaged":
      return `${formatCounted(scrub.damages.length, "file")} ${scrub.damages.length === 1 ? "is" : "are"} damaged (${read} read).`;
    case "failed":
      return `The scrub failed after ${read}.`;
  }
}
