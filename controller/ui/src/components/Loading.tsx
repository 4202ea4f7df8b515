import { Skeleton, Stack } from "@mantine/core";

/** Room for what is on its way. */
export function Loading({ rows = 4, label = "Loading" }: { rows?: number; label?: string }) {
  return (
    <Stack gap="xs" role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, row) => (
        <Skeleton key={row} height={row === 0 ? 28 : 20} radius="sm" />
      ))}
    </Stack>
  );
}
