#include "engine/cuda/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/paths.h"

namespace pare::cuda {
namespace {

bool agree(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isnan(a[i]) != std::isnan(b[i]) || (a[i] != b[i] && std::fabs(a[i] - b[i]) > 1)) return false;
  return true;
}

}  // namespace

std::vector<std::string> judge(const std::vector<TacticSample>& samples) {
  const TacticSample* trusted = nullptr;
  std::size_t most = 0;
  for (const TacticSample& sample : samples) {
    std::size_t score = 0;
    for (const TacticSample& other : samples) score += agree(sample.values, other.values) ? 1 : 0;
    const bool clean =
        std::none_of(sample.values.begin(), sample.values.end(), [](float v) { return std::isnan(v); });
    if (clean) score += samples.size();
    if (score >= most) most = score, trusted = &sample;
  }
  std::vector<std::string> wrong(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (!agree(trusted->values, samples[i].values))
      wrong[i] = "its results are not those of " + trusted->name;
  return wrong;
}

std::string compile_failure(const std::string& source, const std::string& hash, const std::string& reason) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = join_path(folder == nullptr ? "/tmp" : folder, "pare-kernel-" + hash + ".cu");
  try {
    write_file_atomically(path, source);
  } catch (const Error&) {
    path.clear();
  }
  return fmt::format("kernel {} does not compile{}: {}", hash,
                     path.empty() ? "" : " (its source: " + path + ")", reason);
}

}  // namespace pare::cuda
