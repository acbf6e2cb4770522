// Text out of the outputs of a recognizer that was trained with CTC (Graves et al. 2006), and its errors.
//
// Greedy decoding: at each step the class with the largest output (the lowest of equal ones; NaN is never the
// largest); a class that repeats the step before is dropped, then the blanks are. Characters are Unicode code
// points; the errors of a text are the least number of insertions, deletions and substitutions that make it
// the label (Levenshtein); the rate is all errors of the data set over all characters of its labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/spec.h"
#include "engine/base/tensor.h"

namespace pare {

class CtcText {
 public:
  // spec.alphabet: one character (or several) a line, in the order of the classes without the blank. With one
  // class more than characters and blank the last class is a space; with as many classes as lines, the blank
  // has a line too. Errors as read_lines; kUsage for an empty file.
  explicit CtcText(const DatasetSpec& spec);

  // [n, steps, classes] float32, n texts. Error kUsage for another rank or a number of classes that does not
  // fit.
  void add(const TensorView& outputs, const std::vector<std::string>& texts);

  std::string decode(const float* steps, std::int64_t count, std::int64_t classes) const;  // UTF-8
  std::int64_t errors() const { return errors_; }
  std::int64_t characters() const { return characters_; }
  // NaN when the labels have no characters.
  double rate() const;

 private:
  std::vector<std::string> lines_;
  std::int64_t blank_ = 0;
  bool ignore_spaces_ = false;
  std::int64_t errors_ = 0, characters_ = 0;
};

// UTF-8 as code points; a byte that belongs to none counts as one by itself (0xDC00 + byte).
std::vector<std::uint32_t> code_points(const std::string& text);
std::int64_t edit_distance(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b);

}  // namespace pare
