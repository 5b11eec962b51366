"""Products of sparse rows with a sparse table, compiled."""

from manifoldrf._compiling import compiled


@compiled()
def add_product(rows, table, out, span):  # type: ignore[no-untyped-def]
    """out[i] += rows[i] @ table for i in the span; both factors as (indptr, indices, data)."""
    row_ends, row_columns, row_values = rows
    table_ends, table_columns, table_values = table
    for i in range(span[0], span[1]):
        target = out[i]
        for p in range(row_ends[i], row_ends[i + 1]):
            weight = row_values[p]
            j = row_columns[p]
            for q in range(table_ends[j], table_ends[j + 1]):
                target[table_columns[q]] += weight * table_values[q]
