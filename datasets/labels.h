// Class labels: integers, one a sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/source.h"

namespace pare {

// Of a column of `source` named `labels`, of a .npy, or of a .csv. `rows` are the source's rows.
//
// A .csv has lines "label" or "name,label" (the last field is the label), UTF-8, an optional header line,
// quotes around names allowed. With names, and where the source's rows have names, labels go by name and
// every row must have one; otherwise line i is row i. Errors: kUsage where the number of labels differs from
// the number of samples (both said) or labels are no integers; kBadFile for damaged files, a name twice.
std::vector<std::int64_t> load_labels(const std::string& labels, const Source& source);

}  // namespace pare
