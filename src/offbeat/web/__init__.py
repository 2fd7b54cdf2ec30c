"""Files of other authors for pages: uPlot 1.6.32 draws charts.

Its licence, MIT, is ``uplot.LICENSE``; a page that contains uPlot contains the licence, too.
"""
