#pragma once
// JSON lines (one object on every line), as the Amazon reviews come:
// {"reviewerID": "A2", "reviewText": "Fine.", "overall": 5.0, ...}

#include <string_view>

#include "data/table_builder.h"

namespace metaformer {

// Adds the members that data.text_field and data.label_field name of every object in `content`. A text is a string. A
// label is a string, true, false, or a number: whole ones are written without a fraction, so 5.0 and 5 are one label.
// Of members that stand twice in an object the last counts. Lines end with LF or CRLF; blank ones are passed over.
//
// A line is malformed when it is above 16 MiB, has NUL bytes, is not UTF-8, not JSON, nested deeper than 64, not an
// object, has one of the members missing or of another type.
//
// Errors (exit code 3): a member that no object has, with those that the first object has. `source` names the file.
void add_json_lines(std::string_view content, const DataConfig& config, const std::string& source,
                    TableBuilder& builder);

}  // namespace metaformer
