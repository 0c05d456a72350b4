// SPDX-License-Identifier: Apache-2.0
#include "gpt_ops_flavours.hpp"

namespace gpt::test {

std::vector<OpsFlavour> ops_flavours() {
  std::vector<OpsFlavour> all;
  for (const std::size_t threads : {1u, 3u}) {
    all.push_back(
        {.name = "threads_" + std::to_string(threads),
         .make = [threads](const GptShape& shape) { return make_host_ops(shape, threads); },
         .why_not = {}});
  }
  return all;
}

}  // namespace gpt::test
