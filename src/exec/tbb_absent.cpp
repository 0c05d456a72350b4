// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {

std::unique_ptr<Executor> make_tbb_executor(const topology::Machine&,
                                            const std::vector<std::uint32_t>&) {
  throw Error(ErrorCode::unsupported,
              "this build has no oneTBB; configure it with -DOUTBOARD_PLAIN_THREADS=OFF");
}

}  // namespace outboard::exec
