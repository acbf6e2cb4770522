// A Program as the body of a kernel: coordinates c0, c1 ... (u32) of the collapsed iteration space are in
// scope, and the results come out as float o0[w], o1[w] ..., for w neighbours along the last axis.
#pragma once

#include <string>
#include <vector>

#include "engine/cuda/kernel_source.h"

namespace pare::cuda {

class ProgramCode {
 public:
  // keep_last: the last axis stays what it is (row kernels).
  ProgramCode(const PlanLayer& layer, bool keep_last);

  const Dims& dims() const { return dims_; }  // collapsed
  int width() const;                          // most neighbours that all outputs can take as one vector
  std::string load_and_compute(int w) const;
  std::string store_output(std::size_t o, int w, const std::string& values) const;
  // An image's way from planes into pixels of padded channels, space-to-depth or not: a thread reads four
  // neighbours of each plane and row and writes whole pixels. `count` threads; "" when the program is
  // another.
  std::string image_body(std::int64_t& count) const;

 private:
  bool aligned(std::size_t view, int width) const;
  std::string place(std::size_t view) const;
  std::string leaf_code(std::size_t number, int w) const;

  const PlanLayer& layer_;
  Dims dims_;
  std::vector<Dims> strides_;  // of leaves, then of outputs
  std::size_t leaf_count_ = 0;
  std::vector<int> new_axis_;
  bool last_barrier_ = false;
};

// The step over these expressions, e.g. "(s0 + s1)".
std::string step_expression(const ProgramStep& step, const std::vector<std::string>& args);

}  // namespace pare::cuda
