#include "engine/ops/matmul/gemm_f32.h"
#include "engine/base/grain.h"

#include <algorithm>

namespace pare {

void gemm_f32(ThreadPool& pool, const GemmTask& task) {
  if (task.m == 0 || task.n == 0) return;
  // A block of rows that stays in the second-level cache while all panels pass by. Few rows: the panels
  // are shared out too.
  constexpr std::int64_t kRowsOfBlock = 96;
  const std::int64_t panels = gemm_panels(task.n);
  const std::int64_t row_blocks = (task.m + kRowsOfBlock - 1) / kRowsOfBlock;
  const std::int64_t wanted = pool.threads() == 1 ? 1 : 4 * static_cast<std::int64_t>(pool.threads());
  const std::int64_t groups = std::clamp<std::int64_t>((wanted + row_blocks - 1) / row_blocks, 1, panels);
  const auto run = PARE_SIMD_PICK(gemm_f32_task);
  // Below this a second thread costs more than it brings.
  const std::int64_t unit_work = task.m * task.n * std::max<std::int64_t>(task.k, 1) / (row_blocks * groups);
  constexpr std::int64_t kWorthAThread = 1 << 16;
  pool.parallel_for(row_blocks * groups, grain_for(kWorthAThread, unit_work),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t unit = begin; unit < end; ++unit) {
                        const std::int64_t block = unit / groups, group = unit % groups;
                        GemmTask part = task;
                        const std::int64_t row = task.m * block / row_blocks;
                        part.m = task.m * (block + 1) / row_blocks - row;
                        part.a += row * task.lda;
                        part.c += row * task.ldc;
                        if (part.residual != nullptr) part.residual += row * task.ldr;
                        part.panel_begin = panels * group / groups;
                        part.panel_end = panels * (group + 1) / groups;
                        run(part);
                      }
                    });
}

}  // namespace pare
