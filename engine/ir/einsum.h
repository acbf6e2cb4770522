// The equation of Einsum: "bij,bjk->bik", letters, one "..." a term, an output that may be left out (then:
// the ellipsis, and in alphabetic order the letters that stand once). Shape rule and kernels read the same
// one.
#pragma once

#include <string>
#include <vector>

namespace pare {

struct EinsumLabels {
  std::vector<std::vector<int>> in;  // a label an axis of each input
  std::vector<int> out;
  int count = 0;  // labels are 0 .. count-1, those of the output first, in its order
};

// `ranks`: one an input. Axes that an ellipsis stands for are labels of their own, aligned at the last one,
// as in broadcasting. Error kBadFile on an equation that does not parse, does not fit the inputs, or puts out
// what no input has.
EinsumLabels parse_einsum(const std::string& equation, const std::vector<int>& ranks);

}  // namespace pare
