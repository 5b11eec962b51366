"""
Stations on the Earth
=====================

Temperatures between weather stations, from longitudes and latitudes. In the plane of degrees, -179.9 and 179.9 are
far apart; on the sphere they are neighbours. The data are generated: 150 stations, most of them between 30 and 60
degrees north.
"""

import numpy as np

from manifoldrf import ManifoldGaussianProcess, Sphere

earth = Sphere(radius=6371.0)  # kilometres


def annual_mean(lonlat):
    """Warm at the equator, cold at the poles, with waves around the globe."""
    east, north = np.radians(lonlat).T
    return 30 * np.cos(north) ** 2 - 10 + 4 * np.cos(north) * np.cos(2 * east)


rng = np.random.default_rng(0)
north = np.concatenate([rng.uniform(30, 60, 100), np.degrees(np.arcsin(rng.uniform(-1, 1, 50)))])
stations = np.column_stack([rng.uniform(-180, 180, 150), north])
measured = annual_mean(stations) + 0.5 * rng.normal(size=150)

# %%
# A GeoDataFrame of points works in place of the array of degrees.
model = ManifoldGaussianProcess(space=earth, random_state=0).fit(earth.from_lonlat(stations), measured)

sides = [np.column_stack([np.full(7, east), np.linspace(-60, 60, 7)]) for east in (-179.99, 179.99)]
west, east = (model.predict(earth.from_lonlat(side)) for side in sides)
print(f"largest difference across the date line: {np.abs(west - east).max():.2f} degrees")

new = earth.to_lonlat(earth.sample(1000, seed=1))
error = np.abs(model.predict(earth.from_lonlat(new)) - annual_mean(new)).mean()
print(f"mean error at new places: {error:.1f} degrees; noise of a station: 0.5")
