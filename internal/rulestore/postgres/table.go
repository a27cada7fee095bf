package postgres

import (
	"fmt"
	"strings"
)

// table returns rows as one array a column: the same short statement for any number of
// rows, which the server plans once.
func table(after int, rows [][]any) (query string, params []any) {
	var arrays []string
	for column := range rows[0] {
		var kind string
		var array any
		switch rows[0][column].(type) {
		case int64:
			kind, array = "bigint", cells[int64](rows, column)
		case bool:
			kind, array = "boolean", cells[bool](rows, column)
		default:
			kind, array = "text", cells[string](rows, column)
		}
		params = append(params, array)
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", after+len(params), kind))
	}
	return "SELECT * FROM unnest(" + strings.Join(arrays, ", ") + ")", params
}

// cells returns one column of rows.
func cells[T any](rows [][]any, column int) []T {
	out := make([]T, len(rows))
	for i, row := range rows {
		out[i], _ = row[column].(T) // a column has one type
	}
	return out
}
