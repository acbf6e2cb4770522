// TfIdfVectorizer: how often each n-gram of a pool occurs in a row of tokens.
//
// An n-gram at place i with gap s is the tokens i, i + s, i + 2s, ...; gaps go from 1 to max_skip_count + 1,
// single tokens are counted once. ngram_counts[k] is where the (k+1)-grams begin in the pool, ngram_indexes
// gives each n-gram its column. TF: the count; IDF: the weight where the count is not 0; TFIDF: count times
// weight.
#include <map>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/features/strings.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

using Words = std::vector<std::string>;
using Ints = std::vector<std::int64_t>;

struct Vocabulary {
  std::map<std::string, std::int64_t> of_string;  // token numbers, from 0
  std::map<std::int64_t, std::int64_t> of_int;
  std::map<Ints, std::size_t> grams;  // token numbers -> which n-gram

  explicit Vocabulary(const Node& node) {
    const auto strings = node.attrs.find("pool_strings");
    Ints pool;
    if (strings != node.attrs.end()) {
      if (const auto* words = std::get_if<Words>(&strings->second))
        for (const std::string& word : *words)
          pool.push_back(of_string.emplace(word, static_cast<std::int64_t>(of_string.size())).first->second);
    } else {
      for (const std::int64_t token : node.attr_ints("pool_int64s"))
        pool.push_back(of_int.emplace(token, static_cast<std::int64_t>(of_int.size())).first->second);
    }
    const Ints begins = node.attr_ints("ngram_counts");
    for (std::size_t k = 0; k < begins.size(); ++k) {
      const std::int64_t end = k + 1 < begins.size() ? begins[k + 1] : static_cast<std::int64_t>(pool.size());
      const auto n = static_cast<std::int64_t>(k + 1);
      if (begins[k] < 0 || end < begins[k] || end > static_cast<std::int64_t>(pool.size()) ||
          (end - begins[k]) % n != 0)
        fail(ErrorCode::kBadFile, "TfIdfVectorizer: ngram_counts does not fit the pool");
      for (std::int64_t at = begins[k]; at < end; at += n)
        grams.emplace(Ints(pool.begin() + at, pool.begin() + at + n), grams.size());
    }
  }

  std::int64_t number(const TensorView& x, std::int64_t i) const {
    if (x.dtype == DType::kString) {
      const auto found = of_string.find(x.as<std::string>()[i]);
      return found == of_string.end() ? -1 : found->second;
    }
    const std::int64_t value = x.dtype == DType::kI32 ? x.as<std::int32_t>()[i] : x.as<std::int64_t>()[i];
    const auto found = of_int.find(value);
    return found == of_int.end() ? -1 : found->second;
  }
};

std::string why_not(const OpCall& call) {
  const std::string mode = call.node->attr("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") return "mode is '" + mode + "'";
  return type_reason(call, 0, {DType::kString, DType::kI32, DType::kI64});
}

void run(const OpCall& call) {
  const Node& node = *call.node;
  const TensorView& x = call.in[0];
  const Vocabulary vocabulary(node);
  const Ints columns = node.attr_ints("ngram_indexes");
  const std::vector<float> weights = node.attr_floats("weights");
  const std::string mode = node.attr("mode", "");
  const std::int64_t shortest = node.attr("min_gram_length", std::int64_t{1}),
                     longest = node.attr("max_gram_length", std::int64_t{1}),
                     skips = node.attr("max_skip_count", std::int64_t{0});
  if (columns.size() < vocabulary.grams.size() ||
      (!weights.empty() && weights.size() < vocabulary.grams.size()))
    fail(ErrorCode::kBadFile, "TfIdfVectorizer: {} n-grams, {} columns, {} weights", vocabulary.grams.size(),
         columns.size(), weights.size());
  const std::int64_t width = call.out[0].dims.back();
  const std::int64_t length = x.dims.empty() ? 1 : x.dims.back(), rows = length == 0 ? 0 : x.size() / length;
  auto* y = call.out[0].mut<float>();
  std::fill_n(y, call.out[0].size(), 0.0F);
  for (std::int64_t row = 0; row < rows; ++row, y += width) {
    Ints tokens;
    for (std::int64_t i = 0; i < length; ++i) tokens.push_back(vocabulary.number(x, row * length + i));
    for (std::int64_t gap = 1; gap <= skips + 1 && (gap == 1 || gap < length); ++gap)
      for (std::int64_t i = 0; i < length; ++i) {
        Ints gram;
        for (std::int64_t n = 1, at = i; n <= longest && at < length; ++n, at += gap) {
          gram.push_back(tokens[static_cast<std::size_t>(at)]);
          if (gram.back() < 0) break;
          if (n < shortest || (n == 1 && gap > 1)) continue;
          const auto found = vocabulary.grams.find(gram);
          if (found == vocabulary.grams.end()) continue;
          const std::int64_t column = columns[found->second];
          if (column < 0 || column >= width) fail(ErrorCode::kBadFile, "TfIdfVectorizer: column {}", column);
          const float weight = weights.empty() ? 1.0F : weights[found->second];
          if (mode == "IDF")
            y[column] = weight;
          else
            y[column] += mode == "TF" ? 1.0F : weight;
        }
      }
  }
}

}  // namespace

void add_tfidf_reference(Registry& registry) {
  Kernel kernel;
  kernel.op = "TfIdfVectorizer";
  kernel.name = kernel_name("TfIdfVectorizer", "reference");
  kernel.why_not = why_not;
  kernel.run = run;
  registry.add(kernel);
}

}  // namespace pare
