#include "engine/ops/integer/qgemm_rows.h"

#include <algorithm>
#include <vector>

namespace pare {
namespace {

constexpr std::int64_t kTileBytes = 48 * 1024;  // of A: gathered once, read once for every four panels
constexpr std::int64_t kTileRows = 96;

std::uint8_t* tile_buffer(std::int64_t bytes) {
  thread_local std::vector<std::uint8_t> buffer;
  const std::size_t needed = static_cast<std::size_t>(bytes) + 64;
  if (buffer.size() < needed) buffer.resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  return buffer.data() + (64 - address % 64) % 64;
}

struct Piece {
  std::int64_t row, rows, panel, panels;
};

void multiply(const QPacked& b, const QRowSource& source, const QFinish& finish, const Piece& piece) {
  const auto finish_tile = PARE_SIMD_PICK(q_finish);
  const std::int64_t stride = b.row_bytes();
  std::uint8_t* a = tile_buffer(piece.rows * stride);
  source.gather(b, piece.row, piece.rows, a);
  alignas(64) std::int32_t acc[kQMaxRows * kQMaxPanels * kQPanel];
  for (std::int64_t p = piece.panel; p < piece.panel + piece.panels; p += kQMaxPanels) {
    const int count = static_cast<int>(std::min<std::int64_t>(kQMaxPanels, piece.panel + piece.panels - p));
    const std::int64_t column = p * kQPanel, columns = std::min<std::int64_t>(count * kQPanel, b.n - column);
    for (std::int64_t r = 0; r < piece.rows; r += kQMaxRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kQMaxRows, piece.rows - r));
      b.tile(a + r * stride, stride, rows, p, count, acc);
      finish_tile(finish, acc, count * kQPanel, piece.row + r, rows, column, columns);
    }
  }
}

}  // namespace

void qgemm_rows(const QPacked& b, const QRowSource& source, std::int64_t rows, const QFinish& finish,
                ThreadPool* pool) {
  const std::int64_t threads = pool == nullptr ? 1 : pool->threads();
  const auto whole_tiles = [](std::int64_t n) {
    return std::max<std::int64_t>(n / kQMaxRows, 1) * kQMaxRows;
  };
  std::int64_t tile = std::min(kTileRows, whole_tiles(kTileBytes / std::max<std::int64_t>(b.row_bytes(), 1)));
  if (threads > 1) tile = std::min(tile, std::max<std::int64_t>(12, whole_tiles(rows / (threads * 3))));
  const std::int64_t row_pieces = (rows + tile - 1) / tile;
  // Few rows: cut the columns too, though each piece then gathers its rows again.
  const std::int64_t groups = (b.panel_count() + kQMaxPanels - 1) / kQMaxPanels;
  const std::int64_t cuts = row_pieces >= threads * 2 ? 1 : std::min(groups, threads * 2);
  const std::int64_t panels = (groups + cuts - 1) / cuts * kQMaxPanels;
  const auto work = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / cuts * tile, panel = i % cuts * panels;
      const std::int64_t left = std::min(panels, b.panel_count() - panel);
      if (left > 0) multiply(b, source, finish, {row, std::min(tile, rows - row), panel, left});
    }
  };
  if (threads == 1)
    work(0, row_pieces * cuts);
  else
    pool->parallel_for(row_pieces * cuts, 1, work);
}

}  // namespace pare
