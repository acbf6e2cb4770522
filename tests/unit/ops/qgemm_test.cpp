// The tiles of every instruction class against sums in int64, bit for bit: integers leave no tolerance.
#include "engine/ops/integer/qgemm.h"

#include "tests/unit/ops/quant_calls.h"

namespace pare {
namespace {

struct Case {
  const char* what;
  DType a, b;
  std::int32_t za, zb;
};

const Case kCases[] = {
    {"s8_s8", DType::kI8, DType::kI8, 0, 0},         {"u8_s8", DType::kU8, DType::kI8, 0, 0},
    {"u8_mid_s8", DType::kU8, DType::kI8, 128, 0},   {"u8_high_s8", DType::kU8, DType::kI8, 255, 0},
    {"s8_low_s8", DType::kI8, DType::kI8, -128, 0},  {"s8_high_s8", DType::kI8, DType::kI8, 127, 0},
    {"s8_u8_mid", DType::kI8, DType::kU8, 3, 128},   {"u8_u8", DType::kU8, DType::kU8, 7, 11},
    {"s8_s8_off", DType::kI8, DType::kI8, -5, -128}, {"u8_u8_extreme", DType::kU8, DType::kU8, 255, 255},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

std::int32_t value(DType type, std::uint8_t code, std::int32_t zero) {
  return (type == DType::kI8 ? static_cast<std::int8_t>(code) : code) - zero;
}

class QGemm : public testing::TestWithParam<Case> {
 protected:
  // Every number of rows and panels of a tile, and a column count that fills no panel.
  void check(const Tensor& a, const Tensor& b, std::int64_t k, std::int64_t n) {
    const Case& c = GetParam();
    const QType at{c.a == DType::kI8, c.za}, bt{c.b == DType::kI8, c.zb};
    const auto* bc = b.as<std::uint8_t>();
    for (const bool transposed : {false, true}) {
      const QPacked packed = transposed ? qgemm_pack(q_kernels(), at, bt, bc, k, n, 1, k)
                                        : qgemm_pack(q_kernels(), at, bt, bc, k, n, n, 1);
      std::vector<std::uint8_t> rows(static_cast<std::size_t>(packed.row_bytes() * kQMaxRows) + 64, 0x5A);
      for (int r = 0; r < kQMaxRows; ++r)
        packed.copy(a.as<std::uint8_t>() + r * k, k, rows.data() + r * packed.row_bytes());
      for (int count = 1; count <= kQMaxRows; ++count) {
        for (int panels = 1; panels <= std::min<std::int64_t>(kQMaxPanels, packed.panel_count()); ++panels) {
          const std::int64_t first = packed.panel_count() - panels;
          std::vector<std::int32_t> acc(static_cast<std::size_t>(count * panels * kQPanel));
          packed.tile(rows.data(), packed.row_bytes(), count, first, panels, acc.data());
          for (int r = 0; r < count; ++r) {
            for (std::int64_t col = first * kQPanel; col < n; ++col) {
              std::int64_t sum = 0;
              for (std::int64_t i = 0; i < k; ++i)
                sum += static_cast<std::int64_t>(value(c.a, a.as<std::uint8_t>()[r * k + i], c.za)) *
                       value(c.b, bc[transposed ? col * k + i : i * n + col], c.zb);
              const std::size_t at_acc =
                  static_cast<std::size_t>(r * panels * kQPanel + col - first * kQPanel);
              ASSERT_EQ(acc[at_acc], sum) << "k " << k << " row " << r << " column " << col << " of " << n;
            }
          }
        }
      }
    }
  }
};

TEST_P(QGemm, TilesAreExact) {
  std::mt19937 rng(11);
  test::EachIsa each;
  each([&] {
    if (q_kernels() == nullptr) return;
    for (const std::int64_t k : {1, 2, 3, 4, 5, 63, 64, 65, 127, 1000})
      for (const std::int64_t n : {1, 16, 37, 64})
        check(test::random_codes(GetParam().a, {kQMaxRows, k}, rng),
              test::random_codes(GetParam().b, {k, n}, rng), k, n);
  });
}

// All codes at the ends of their range and K at its limit: the largest sums there are.
TEST_P(QGemm, HoldsTheLargestSums) {
  const Case& c = GetParam();
  const QType at{c.a == DType::kI8, c.za}, bt{c.b == DType::kI8, c.zb};
  const std::int64_t k = qgemm_max_k(at, bt);
  test::EachIsa each;
  each([&] {
    if (q_kernels() == nullptr) return;
    for (const int a_code : {0x00, 0x7F, 0x80, 0xFF})
      for (const int b_code : {0x00, 0x7F, 0x80, 0xFF}) {
        const std::vector<std::uint8_t> a(static_cast<std::size_t>(k * kQMaxRows),
                                          static_cast<std::uint8_t>(a_code));
        const std::vector<std::uint8_t> b(static_cast<std::size_t>(k), static_cast<std::uint8_t>(b_code));
        const QPacked packed = qgemm_pack(q_kernels(), at, bt, b.data(), k, 1, 1, 1);
        std::vector<std::uint8_t> row(static_cast<std::size_t>(packed.row_bytes()) + 64);
        packed.copy(a.data(), k, row.data());
        std::int32_t acc[kQPanel];
        packed.tile(row.data(), packed.row_bytes(), 1, 0, 1, acc);
        EXPECT_EQ(acc[0], k * value(c.a, static_cast<std::uint8_t>(a_code), c.za) *
                              value(c.b, static_cast<std::uint8_t>(b_code), c.zb));
      }
  });
}

TEST(QGemmLimits, LongestSum) {
  EXPECT_EQ(qgemm_max_k({true, 0}, {true, 0}), 131071);       // 128 * 128 a product
  EXPECT_EQ(qgemm_max_k({false, 0}, {true, 0}), 65793);       // 255 * 128
  EXPECT_EQ(qgemm_max_k({false, 255}, {false, 255}), 33025);  // 255 * 255
}

INSTANTIATE_TEST_SUITE_P(Types, QGemm, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.what); });

}  // namespace
}  // namespace pare
