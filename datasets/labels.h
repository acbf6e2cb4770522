// What belongs to each sample beside its data: class numbers, texts, widths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/source.h"

namespace pare {

struct Labels {  // one of the two is empty
  std::vector<std::int64_t> numbers;
  std::vector<std::string> texts;
};

// Of a column of `source` named `labels`, of a .npy, a .csv, a .txt or "FILE.json:KEY"; one a row of the
// source.
//
// A .txt has one text a line (UTF-8). In a .json the key holds a list of integers, or of texts.
// A .csv has lines "label" or "name,label" (the last field is the label), UTF-8, an optional header line,
// quotes around names allowed. With names, and where the source's rows have names, labels go by name and
// every row must have one; otherwise line i is row i. Errors: kUsage where the number of labels differs from
// the number of samples (both said) or labels are no integers; kBadFile for damaged files, a name twice.
Labels load_labels(const std::string& labels, const Source& source);

// The lines of a text file, without their ends (\n or \r\n); a last line without an end counts, a UTF-8 byte
// order mark does not. Error kBadFile above limits::kMaxTableBytes.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace pare
