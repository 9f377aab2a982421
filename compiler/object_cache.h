// SPDX-License-Identifier: Apache-2.0
/*
 * Compiled kernels on disk, by content: $XDG_CACHE_HOME/infc/kernels (or ~/.cache). An entry holds everything its object
 * depends on (canonical text, level, code generator, this very compiler) and is used only when all of that is equal, so
 * that neither a hash collision nor an update of infc can give a wrong kernel. It also holds a hash of itself.
 *
 * A folder that belongs to somebody else, or that others may write to, is not used. Entries are written beside and renamed;
 * several infc may run at once. All functions but open and close may be called from any thread.
 */
#ifndef INFC_COMPILER_OBJECT_CACHE_H
#define INFC_COMPILER_OBJECT_CACHE_H

#include "ir/support/diag.h"
#include "ir/support/str.h"
#include "ir/target.h"

struct object_cache;

#define OBJECT_CACHE_MAX_BYTES ((uint64_t)512 << 20)

/* dir NULL: the default place. identity: what all keys depend on. NULL with a warning when there is no usable folder. */
struct object_cache *object_cache_open(const char *dir, const char *identity, struct diag_sink *diag);
#define OBJECT_CACHE_ANY_SIZE UINT64_MAX
/*
 * Removes the entries that were not used for longest until the folder is below max_bytes; frees. NULL is fine. Looking at all entries
 * takes some 50 ms of a full cache: OBJECT_CACHE_ANY_SIZE, for whoever stored nothing, does not.
 */
void object_cache_close(struct object_cache *c, uint64_t max_bytes);

/* True when key is there; out->data is malloc'd. */
bool object_cache_find(const struct object_cache *c, const struct strbuf *key, struct target_object *out);
/* Failure is silent: a full disk must not fail a build that does not need the cache. */
void object_cache_store(const struct object_cache *c, const struct strbuf *key, const struct target_object *object);

/* What this compiler is: a hash of its own file. False when that cannot be read. */
bool object_cache_self_identity(struct strbuf *out);

#endif
