// SPDX-License-Identifier: Apache-2.0
/// Owners of hwloc's objects, for this room only.
#pragma once

#include <hwloc.h>

#include <memory>

namespace outboard::topology {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, TopologyDeleter>;

struct BitmapDeleter {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using BitmapHandle = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

/// An initialized, not yet loaded topology that keeps no caches and no devices; null if there is no
/// memory for one.
[[nodiscard]] inline TopologyHandle make_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  TopologyHandle handle(topology);
  // A refused filter only costs time: more objects than needed.
  (void)hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  (void)hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  return handle;
}

}  // namespace outboard::topology
