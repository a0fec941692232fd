export function Job({ id }: { id: string }) {
  return <main>{id}</main>;
}
