// SPDX-License-Identifier: Apache-2.0
/*
 * A device other than the CPU: it has the engine's weights and the memory of running calls, and executes the plan that was made
 * for its architecture. Binding of inputs, shapes and checks are the same as on the CPU (bind.c).
 *
 * The types of devices are listed by weak reference, so that an engine without code for one links nothing of it.
 */
#ifndef INFC_RUNTIME_DEVICE_H
#define INFC_RUNTIME_DEVICE_H

#include "runtime/infr.h"

struct infr_engine;
struct rt_shape;

/* Begins every device's own structure. */
struct rt_device {
    const struct rt_device_type *type;
    const char *arch;      /* "sm90": the image in use */
    const void *plan;      /* of this architecture */
    uint64_t plan_bytes;
};

struct rt_device_type {
    const char *name;
    /* Finds a device that can run one of the images (NULL behind the last). Allocates no device memory. */
    int (*open)(const void *const *images, struct rt_device **out, struct infr_status *st);
    void (*close)(struct rt_device *d);
    /* Code and weights onto the device, after the plan was validated. */
    int (*load)(struct rt_device *d, const struct infr_engine *e, struct infr_status *st);
    /* s->io holds the inputs' and outputs' host addresses, s->results the outputs. */
    int (*run)(struct rt_device *d, struct infr_session *s, struct rt_shape *shape, struct infr_status *st);
    uint64_t (*free_memory)(struct rt_device *d); /* bytes; 0: unknown */
    void (*session_destroy)(struct rt_device *d, struct infr_session *s);
};

/* In the archive part of the runtime; NULL where the engine has no code for it. */
extern const struct rt_device_type infr_cuda_device __attribute__((weak));

#endif
