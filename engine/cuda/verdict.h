// What becomes of tactics that cannot be taken: results that are not those of the others, kernels that do not
// compile. Plain data, no device.
#pragma once

#include <string>
#include <vector>

namespace pare::cuda {

// Results of one tactic on the operands that all tactics of a layer get: each output's first elements in a
// unit of which two right tactics differ by less than 1.
struct TacticSample {
  std::string name;
  std::vector<float> values;
};

// For each sample "" or why it is wrong. Trusted is the result that most others agree with, numbers before
// NaN; among equals the last, which is a library's or a simpler kernel. Two results agree when no element
// differs by more than 1 and NaN stands in the same places (so that operands that must give NaN drop nobody);
// infinities must be equal.
std::vector<std::string> judge(const std::vector<TacticSample>& samples);

// The sentence about a kernel that does not compile. Its whole source stays behind in TMPDIR (/tmp) as
// pare-kernel-HASH.cu, which the sentence names, unless that cannot be written.
std::string compile_failure(const std::string& source, const std::string& hash, const std::string& reason);

}  // namespace pare::cuda
