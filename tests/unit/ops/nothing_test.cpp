// Every operator over nothing, and over what does not fit: each case of a table again with each of its sizes
// made 0 (where it is one name's in all inputs, and in one place alone) or off by one, with each number of
// its attributes and of its small integer inputs made 0 and -1, and with each list of its attributes a little
// short or long. The shape rule may refuse such a call; what it lets through every kernel computes as the
// reference does, or all refuse it with an Error.
#include <algorithm>
#include <optional>
#include <set>

#include "tests/unit/ops/nothing_cases.h"

namespace pare::testing {
namespace {

using Ints = std::vector<std::int64_t>;

// The case with this size of this input 0; every element is gone with it.
void clear_axis(OpCase& c, std::size_t input, std::size_t axis) {
  Dims dims = c.in[input].dims();
  dims[axis] = 0;
  c.in[input] = Tensor::allocate(c.in[input].dtype(), dims);
}

std::vector<OpCase> without_a_size(const OpCase& c) {
  std::vector<OpCase> all;
  std::set<std::int64_t> sizes;
  for (const Tensor& t : c.in) sizes.insert(t.dims().begin(), t.dims().end());
  for (const std::int64_t size : sizes) {
    OpCase changed = c;
    for (std::size_t i = 0; i < c.in.size(); ++i)
      for (std::size_t axis = 0; axis < c.in[i].dims().size(); ++axis)
        if (c.in[i].dims()[axis] == size) clear_axis(changed, i, axis);
    all.push_back(std::move(changed));
  }
  for (std::size_t i = 0; i < c.in.size(); ++i)
    for (std::size_t axis = 0; axis < c.in[i].dims().size(); ++axis) {
      OpCase changed = c;
      clear_axis(changed, i, axis);
      all.push_back(std::move(changed));
    }
  return all;
}

// One size of one input one less or one more than the others ask for.
std::vector<OpCase> with_a_size_off(const OpCase& c, std::int64_t off) {
  std::vector<OpCase> all;
  for (std::size_t i = 0; i < c.in.size(); ++i)
    for (std::size_t axis = 0; axis < c.in[i].dims().size(); ++axis) {
      const Tensor& before = c.in[i];
      if (before.dtype() == DType::kString || bits(before.dtype()) % 8 != 0) continue;
      Dims dims = before.dims();
      dims[axis] += off;
      OpCase changed = c;
      Tensor& after = changed.in[i];
      after = Tensor::allocate(before.dtype(), dims);
      const auto size = static_cast<std::size_t>(before.bytes());
      for (std::size_t at = 0; at < static_cast<std::size_t>(after.bytes()); ++at)
        after.mut<std::byte>()[at] = before.as<std::byte>()[at % size];
      all.push_back(std::move(changed));
    }
  return all;
}

std::vector<OpCase> with_a_number(const OpCase& c, std::int64_t number) {
  std::vector<OpCase> all;
  for (const auto& [key, value] : c.attrs) {
    OpCase changed = c;
    if (std::holds_alternative<std::int64_t>(value)) {
      changed.attrs[key] = number;
      all.push_back(changed);
    } else if (const auto* list = std::get_if<Ints>(&value)) {
      for (std::size_t k = 0; k < list->size(); ++k) {
        Ints other = *list;
        other[k] = number;
        changed.attrs[key] = other;
        all.push_back(changed);
      }
    }
  }
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].dtype() != DType::kI64 || c.in[i].size() > 8) continue;
    for (std::int64_t k = 0; k < c.in[i].size(); ++k) {
      OpCase changed = c;
      changed.in[i] = c.in[i].clone();
      changed.in[i].mut<std::int64_t>()[k] = number;
      all.push_back(std::move(changed));
    }
  }
  return all;
}

// Lists of numbers and words that are empty, one short and one long.
std::vector<OpCase> with_a_list_off(const OpCase& c) {
  std::vector<OpCase> all;
  const auto change = [&](const std::string& key, auto list) {
    if (list.empty()) return;
    OpCase changed = c;
    for (const int to : {0, 1, 2}) {
      auto other = list;
      if (to == 0) other.clear();
      if (to == 1) other.pop_back();
      if (to == 2) other.push_back(list.back());
      changed.attrs[key] = other;
      all.push_back(changed);
    }
  };
  for (const auto& [key, value] : c.attrs) {
    if (const auto* ints = std::get_if<Ints>(&value)) change(key, *ints);
    if (const auto* numbers = std::get_if<std::vector<float>>(&value)) change(key, *numbers);
    if (const auto* words = std::get_if<std::vector<std::string>>(&value)) change(key, *words);
  }
  return all;
}

std::string describe(const OpCase& c) {
  std::string s = text(c);
  for (const auto& [key, value] : c.attrs) {
    if (const auto* one_number = std::get_if<std::int64_t>(&value))
      s += " " + key + "=" + std::to_string(*one_number);
    if (const auto* list = std::get_if<Ints>(&value)) s += " " + key + "=" + to_string(*list);
    if (const auto* numbers = std::get_if<std::vector<float>>(&value))
      s += " " + key + " of " + std::to_string(numbers->size());
    if (const auto* words = std::get_if<std::vector<std::string>>(&value))
      s += " " + key + " of " + std::to_string(words->size());
  }
  for (const Tensor& t : c.in)
    if (t.dtype() == DType::kI64 && t.size() <= 8) s += " " + to_string(t.to_ints());
  return s;
}

struct Outcome {
  std::string error;  // of the shape rule or the kernel
  OpRun run;
};

Outcome outcome(const Kernel& kernel, const OpCase& c, int threads) {
  try {
    return {"", run_case(kernel, c, threads)};
  } catch (const Error& error) {
    return {error.what(), {}};
  }
}

// Every kernel of the operator ends as the last one that takes the case does.
void check_agreement(const OpCase& c) {
  const std::string what = describe(c);
  std::optional<Outcome> want;
  for (const Kernel* kernel : cpu_registry().candidates(c.domain, c.op, Backend::kCpu)) {
    Outcome last = outcome(*kernel, c, 1);
    if (last.run.declined.empty()) want = std::move(last);
  }
  if (!want) return;  // "no kernel", said with every reason
  for (const Kernel* kernel : cpu_registry().candidates(c.domain, c.op, Backend::kCpu))
    for (int level = 0; level <= static_cast<int>(std::min(best_isa(), Isa::kAvx512)); ++level) {
      set_isa(static_cast<Isa>(level));
      const Outcome got = outcome(*kernel, c, level == 0 ? 3 : 1);
      set_isa(best_isa());
      const std::string where = std::string(kernel->name) + " " + name(static_cast<Isa>(level)) + " " + what;
      if (!got.run.declined.empty()) continue;
      ASSERT_EQ(got.error.empty(), want->error.empty()) << where << ": " << got.error << want->error;
      ASSERT_EQ(got.run.out.size(), want->run.out.size()) << where;
      for (std::size_t i = 0; i < got.run.out.size(); ++i)
        expect_close(got.run.out[i], want->run.out[i], c.relative, c.absolute, where);
    }
}

class Nothing : public ::testing::TestWithParam<OpCase> {};

// The cases themselves hold: else nothing would be made of them.
TEST_P(Nothing, TheCaseItselfRuns) { check_case(GetParam()); }

TEST_P(Nothing, ASizeOf0) {
  for (const OpCase& c : without_a_size(GetParam())) check_agreement(c);
}

TEST_P(Nothing, ASizeThatMayNotFit) {
  for (const std::int64_t off : {-1, 1})
    for (const OpCase& c : with_a_size_off(GetParam(), off)) check_agreement(c);
}

TEST_P(Nothing, ANumberOf0OrBelow) {
  for (const std::int64_t number : {0, -1})
    for (const OpCase& c : with_a_number(GetParam(), number)) check_agreement(c);
}

TEST_P(Nothing, AListThatMayNotFit) {
  for (const OpCase& c : with_a_list_off(GetParam())) check_agreement(c);
}

INSTANTIATE_TEST_SUITE_P(Ops, Nothing, ::testing::ValuesIn(nothing_cases()),
                         [](const ::testing::TestParamInfo<OpCase>& c) {
                           std::string text = c.param.domain + c.param.op + "_" + std::to_string(c.index);
                           std::replace(text.begin(), text.end(), '.', '_');
                           return text;
                         });

// What the table leaves out, each with its reason.
TEST(NothingTable, HoldsEveryOperatorOfTheRegistry) {
  const std::set<std::string> elsewhere = {
      "Bernoulli",         "Multinomial",  "RandomNormal",     "RandomNormalLike", "RandomUniform",
      "RandomUniformLike",  // draws
      "RegexFullMatch",    "StringConcat", "StringNormalizer", "StringSplit",
      "TfIdfVectorizer",  // strings_test
      "DecodeBlocks",      "QConv",        "QMatMul",
      "WMatMul",  // packed by passes
  };
  std::set<std::string> here;
  for (const OpCase& c : nothing_cases()) here.insert(c.op);
  for (const Kernel& kernel : cpu_registry().kernels()) {
    const std::string op(kernel.op);
    EXPECT_TRUE(here.count(op) + elsewhere.count(op) > 0) << op << " is in no case of this table";
  }
}

}  // namespace
}  // namespace pare::testing
